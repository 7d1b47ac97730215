-- name: lease_held
SELECT shard, epoch FROM {shards} WHERE outbox = :outbox_name AND token = :token;

-- name: assign_shard
UPDATE {delivery}
   SET {shard} = :shard, {ordering_key} = :ordering_key, {delivery_version} = :version,
       {occurred_at} = COALESCE({occurred_at}, :now)
 WHERE {delivery_event_id} = :event_id AND {shard} IS NULL;

-- name: unsent_exists
-- A parked event waits for a person, and what stands behind it waits with it. An index is used only where the
-- index's own condition stands in the statement; in its order, or the planner might walk past all that is sent.
SELECT 1 AS found FROM {delivery} d {join_facts}
 WHERE {is_unsent} AND d.{state} IN ('NEW', 'RETRY') AND {o}.{occurred_at} <= :written_by
   AND COALESCE({o}.{deliver_at}, {o}.{occurred_at}) <= :due_by
   AND NOT EXISTS (SELECT 1 FROM (SELECT * FROM {delivery} WHERE {state} NOT IN ('SENT', 'SKIPPED')) f
                    WHERE f.{unsent_shard} = d.{shard} AND f.{ordering_key} = d.{ordering_key} AND f.{state} = 'FAILED')
 ORDER BY d.{unsent_shard}, d.{ordering_key}, d.{delivery_version} LIMIT 1;

-- name: version_read
SELECT version FROM {versions} WHERE aggregate_type = :aggregate_type AND aggregate_id = :aggregate_id;
