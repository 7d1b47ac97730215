-- name: outbox_unsent_count
-- No more than so many are looked at: what is asked every few seconds must not cost more while a backlog grows.
-- The index is named, because the planner might otherwise walk past all that is sent.
SELECT state, COUNT(*) AS events, MIN(due) AS oldest
  FROM (SELECT CASE WHEN d.{state} = 'NEW' AND {o}.{deliver_at} > :now THEN 'SCHEDULED' ELSE d.{state} END AS state,
               COALESCE({o}.{deliver_at}, {o}.{occurred_at}) AS due
          FROM {delivery} d INDEXED BY {unsent_index} {join_facts}
         WHERE d.{state} NOT IN ('SENT', 'SKIPPED')
         ORDER BY d.{shard}, d.{ordering_key}, d.{delivery_version}
         LIMIT :most) looked_at
 GROUP BY state;

-- name: outbox_due_count
-- What is new and due. Delayed events have keys of their own, which lie together in each shard, and are looked at by
-- themselves: however many are still to come, they hide nothing that waits.
WITH RECURSIVE waiting(shard) AS (
  SELECT min(d.{shard}) FROM {delivery} d INDEXED BY {unsent_index} WHERE d.{state} NOT IN ('SENT', 'SKIPPED')
  UNION ALL
  SELECT (SELECT min(d.{shard}) FROM {delivery} d INDEXED BY {unsent_index}
           WHERE d.{state} NOT IN ('SENT', 'SKIPPED') AND d.{shard} > w.shard)
    FROM waiting w WHERE w.shard IS NOT NULL
)
SELECT COUNT(*) AS events, MIN(due) AS oldest
  FROM (SELECT * FROM (
          SELECT d.{state} AS state, {o}.{deliver_at} AS deliver_at, COALESCE({o}.{deliver_at}, {o}.{occurred_at}) AS due
            FROM waiting w CROSS JOIN {delivery} d INDEXED BY {unsent_index} {join_facts}
           WHERE d.{shard} = w.shard AND d.{state} NOT IN ('SENT', 'SKIPPED')
             AND d.{ordering_key} < 'delayed/' LIMIT :most) early
        UNION ALL
        SELECT * FROM (
          SELECT d.{state} AS state, {o}.{deliver_at} AS deliver_at, COALESCE({o}.{deliver_at}, {o}.{occurred_at}) AS due
            FROM waiting w CROSS JOIN {delivery} d INDEXED BY {unsent_index} {join_facts}
           WHERE d.{shard} = w.shard AND d.{state} NOT IN ('SENT', 'SKIPPED')
             AND d.{ordering_key} >= 'delayed0' LIMIT :most) late
        UNION ALL
        SELECT * FROM (
          SELECT d.{state} AS state, {o}.{deliver_at} AS deliver_at, COALESCE({o}.{deliver_at}, {o}.{occurred_at}) AS due
            FROM waiting w CROSS JOIN {delivery} d INDEXED BY {unsent_index} {join_facts}
           WHERE d.{shard} = w.shard AND d.{state} NOT IN ('SENT', 'SKIPPED')
             AND d.{ordering_key} >= 'delayed/' AND d.{ordering_key} < 'delayed0' LIMIT :most) put_off
        UNION ALL
        SELECT * FROM (
          SELECT d.{state} AS state, {o}.{deliver_at} AS deliver_at, COALESCE({o}.{deliver_at}, {o}.{occurred_at}) AS due
            FROM {delivery} d INDEXED BY {unsent_index} {join_facts}
           WHERE d.{shard} IS NULL AND d.{state} NOT IN ('SENT', 'SKIPPED') LIMIT :most) unsharded) looked_at
 WHERE state = 'NEW' AND (deliver_at IS NULL OR deliver_at <= :now);

-- name: outbox_held_count
-- What is tried again and what is parked, counted by themselves: a long backlog of new events must not hide them.
SELECT state, COUNT(*) AS events, MIN(due) AS oldest
  FROM (SELECT * FROM (
          SELECT 'RETRY' AS state, COALESCE({o}.{deliver_at}, {o}.{occurred_at}) AS due
            FROM {delivery} d INDEXED BY {held_index} {join_facts}
           WHERE d.{state} IN ('RETRY', 'FAILED') AND d.{state} = 'RETRY' LIMIT :most) waiting
        UNION ALL
        SELECT * FROM (
          SELECT 'FAILED' AS state, COALESCE({o}.{deliver_at}, {o}.{occurred_at}) AS due
            FROM {delivery} d INDEXED BY {held_index} {join_facts}
           WHERE d.{state} IN ('RETRY', 'FAILED') AND d.{state} = 'FAILED' LIMIT :most) parked) held
 GROUP BY state;

-- name: outbox_oldest
-- In the order of their index, if the facts lie in the same table.
SELECT MIN(due) AS oldest
  FROM (SELECT d.{state} AS state, {o}.{deliver_at} AS deliver_at, COALESCE({o}.{deliver_at}, {o}.{occurred_at}) AS due
          FROM {delivery} d {join_facts}
         WHERE d.{state} NOT IN ('SENT', 'SKIPPED')
         ORDER BY COALESCE({o}.{occurred_at}, '9999-12-31T00:00:00.000000Z')
         LIMIT :most) looked_at
 WHERE state = 'NEW' AND (deliver_at IS NULL OR deliver_at <= :now);
