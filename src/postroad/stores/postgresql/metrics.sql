-- name: outbox_unsent_count
-- No more than so many are looked at: what is asked every few seconds must not cost more while a backlog grows.
-- In the order of the index, so that the planner takes it and does not walk past all that is sent.
SELECT state, COUNT(*) AS events, MIN(due) AS oldest
  FROM (SELECT CASE WHEN d.{state} = 'NEW' AND {o}.{deliver_at} > :now THEN 'SCHEDULED' ELSE d.{state} END AS state,
               COALESCE({o}.{deliver_at}, {o}.{occurred_at}) AS due
          FROM {delivery} d {join_facts}
         WHERE d.{state} NOT IN ('SENT', 'SKIPPED')
         ORDER BY d.{shard}, d.{ordering_key}, d.{delivery_version}
         LIMIT :most) looked_at
 GROUP BY state;

-- name: outbox_due_count
-- What is new and due. Delayed events have keys of their own, which lie together in each shard, and are looked at by
-- themselves: however many are still to come, they hide nothing that waits.
WITH RECURSIVE waiting AS (
  (SELECT d.{shard} AS shard FROM {delivery} d
    WHERE d.{state} NOT IN ('SENT', 'SKIPPED') AND d.{shard} >= 0 ORDER BY d.{shard} LIMIT 1)
  UNION ALL
  SELECT n.shard FROM waiting w
    CROSS JOIN LATERAL (
      SELECT d.{shard} AS shard FROM {delivery} d
       WHERE d.{state} NOT IN ('SENT', 'SKIPPED') AND d.{shard} > w.shard ORDER BY d.{shard} LIMIT 1) n
)
SELECT COUNT(*) AS events, MIN(due) AS oldest
  FROM (SELECT * FROM (
          SELECT n.* FROM waiting w CROSS JOIN LATERAL (
            SELECT d.{state} AS state, {o}.{deliver_at} AS deliver_at, COALESCE({o}.{deliver_at}, {o}.{occurred_at}) AS due
              FROM {delivery} d {join_facts}
             WHERE d.{shard} = w.shard AND d.{state} NOT IN ('SENT', 'SKIPPED')
               AND d.{ordering_key} < 'delayed/'
             ORDER BY d.{ordering_key}, d.{delivery_version} LIMIT :most) n
           LIMIT :most) early
        UNION ALL
        SELECT * FROM (
          SELECT n.* FROM waiting w CROSS JOIN LATERAL (
            SELECT d.{state} AS state, {o}.{deliver_at} AS deliver_at, COALESCE({o}.{deliver_at}, {o}.{occurred_at}) AS due
              FROM {delivery} d {join_facts}
             WHERE d.{shard} = w.shard AND d.{state} NOT IN ('SENT', 'SKIPPED')
               AND d.{ordering_key} >= 'delayed0'
             ORDER BY d.{ordering_key}, d.{delivery_version} LIMIT :most) n
           LIMIT :most) late
        UNION ALL
        SELECT * FROM (
          SELECT n.* FROM waiting w CROSS JOIN LATERAL (
            SELECT d.{state} AS state, {o}.{deliver_at} AS deliver_at, COALESCE({o}.{deliver_at}, {o}.{occurred_at}) AS due
              FROM {delivery} d {join_facts}
             WHERE d.{shard} = w.shard AND d.{state} NOT IN ('SENT', 'SKIPPED')
               AND d.{ordering_key} >= 'delayed/' AND d.{ordering_key} < 'delayed0'
             ORDER BY d.{ordering_key}, d.{delivery_version} LIMIT :most) n
           LIMIT :most) put_off
        UNION ALL
        SELECT * FROM (
          SELECT d.{state} AS state, {o}.{deliver_at} AS deliver_at, COALESCE({o}.{deliver_at}, {o}.{occurred_at}) AS due
            FROM {delivery} d {join_facts}
           WHERE d.{shard} IS NULL AND d.{state} NOT IN ('SENT', 'SKIPPED')
           ORDER BY d.{ordering_key}, d.{delivery_version} LIMIT :most) unsharded) looked_at
 WHERE state = 'NEW' AND (deliver_at IS NULL OR deliver_at <= :now);

-- name: outbox_held_count
-- What is tried again and what is parked, counted by themselves: a long backlog of new events must not hide them.
SELECT state, COUNT(*) AS events, MIN(due) AS oldest
  FROM (SELECT * FROM (
          SELECT 'RETRY' AS state, COALESCE({o}.{deliver_at}, {o}.{occurred_at}) AS due
            FROM {delivery} d {join_facts}
           WHERE d.{state} = 'RETRY' ORDER BY d.{next_attempt_at} LIMIT :most) waiting
        UNION ALL
        SELECT * FROM (
          SELECT 'FAILED' AS state, COALESCE({o}.{deliver_at}, {o}.{occurred_at}) AS due
            FROM {delivery} d {join_facts}
           WHERE d.{state} = 'FAILED' ORDER BY d.{next_attempt_at} LIMIT :most) parked) held
 GROUP BY state;

-- name: outbox_oldest
-- In the order of their index, if the facts lie in the same table.
SELECT MIN(due) AS oldest
  FROM (SELECT d.{state} AS state, {o}.{deliver_at} AS deliver_at, COALESCE({o}.{deliver_at}, {o}.{occurred_at}) AS due
          FROM {delivery} d {join_facts}
         WHERE d.{state} NOT IN ('SENT', 'SKIPPED')
         ORDER BY COALESCE({o}.{occurred_at}, CAST('9999-12-31 00:00:00+00' AS timestamptz))
         LIMIT :most) looked_at
 WHERE state = 'NEW' AND (deliver_at IS NULL OR deliver_at <= :now);
