-- name: outbox_unsent_count
-- No more than so many are looked at: what is asked every few seconds must not cost more while a backlog grows.
-- The index is named, because the optimiser might otherwise walk past all that is sent.
SELECT state, COUNT(*) AS events, MIN(due) AS oldest
  FROM (SELECT CASE WHEN d.{state} = 'NEW' AND {o}.{deliver_at} > :now THEN 'SCHEDULED' ELSE d.{state} END AS state,
               COALESCE({o}.{deliver_at}, {o}.{occurred_at}) AS due
          FROM {delivery} d FORCE INDEX ({unsent_index}) {join_facts}
         WHERE d.unsent_shard IS NOT NULL
         ORDER BY d.unsent_shard, d.{ordering_key}, d.{delivery_version}
         LIMIT :most) looked_at
 GROUP BY state;

-- name: outbox_held_count
-- What is tried again and what is parked, counted by themselves: a long backlog of new events must not hide them.
SELECT state, COUNT(*) AS events, MIN(due) AS oldest
  FROM (SELECT * FROM (
          SELECT 'RETRY' AS state, COALESCE({o}.{deliver_at}, {o}.{occurred_at}) AS due
            FROM {delivery} d FORCE INDEX ({sent_index}) {join_facts}
           WHERE d.{state} = 'RETRY' LIMIT :most) waiting
        UNION ALL
        SELECT * FROM (
          SELECT 'FAILED' AS state, COALESCE({o}.{deliver_at}, {o}.{occurred_at}) AS due
            FROM {delivery} d FORCE INDEX ({sent_index}) {join_facts}
           WHERE d.{state} = 'FAILED' LIMIT :most) parked) held
 GROUP BY state;

-- name: outbox_oldest
-- In the order of the ids, which begin with the time; the index ends with them.
SELECT MIN(due) AS oldest
  FROM (SELECT d.{state} AS state, {o}.{deliver_at} AS deliver_at, COALESCE({o}.{deliver_at}, {o}.{occurred_at}) AS due
          FROM {delivery} d FORCE INDEX ({sent_index}) {join_facts}
         WHERE d.{state} = 'NEW' AND d.{published_at} IS NULL
         ORDER BY d.{delivery_event_id}
         LIMIT :most) looked_at
 WHERE state = 'NEW' AND (deliver_at IS NULL OR deliver_at <= :now);
