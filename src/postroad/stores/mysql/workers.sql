-- name: worker_beat
INSERT INTO {workers} (id, kind, name, detail, started_at, seen_at)
VALUES (:id, :kind, :name, :detail, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))
ON DUPLICATE KEY UPDATE seen_at = UTC_TIMESTAMP(6);

-- name: workers_alive
SELECT id, kind, name, detail, started_at, seen_at FROM {workers}
 WHERE seen_at > UTC_TIMESTAMP(6) - INTERVAL :ttl * 1000000 MICROSECOND ORDER BY kind, name;

-- name: workers_forget
DELETE FROM {workers} WHERE seen_at < UTC_TIMESTAMP(6) - INTERVAL :ttl * 1000000 MICROSECOND;

-- name: pause_add
-- One that is there already is told by an error.
INSERT INTO {pauses} (kind, name, actor, reason, since) VALUES (:kind, :name, :actor, :reason, :now);
