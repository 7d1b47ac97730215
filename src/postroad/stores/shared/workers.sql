-- name: worker_gone
DELETE FROM {workers} WHERE id = :id;

-- name: pauses
SELECT kind, name, actor, reason, since FROM {pauses} ORDER BY kind, name;

-- name: pause_end
DELETE FROM {pauses} WHERE kind = :kind AND name = :name;
