-- name: worker_gone
DELETE FROM {workers} WHERE id = :id;

-- name: pauses
SELECT kind, name, actor, reason, since FROM {pauses} ORDER BY kind, name;

-- name: pause_end
DELETE FROM {pauses} WHERE kind = :kind AND name = :name;

-- name: relay_ever
-- Whether any relay has ever held a shard there.
SELECT shard FROM {shards} WHERE outbox = :outbox_name AND epoch > 0 LIMIT 1;
