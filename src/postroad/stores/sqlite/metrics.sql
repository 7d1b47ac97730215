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
