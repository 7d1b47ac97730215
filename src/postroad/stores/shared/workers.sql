-- name: worker_gone
DELETE FROM {workers} WHERE id = :id;
