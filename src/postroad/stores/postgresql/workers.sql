-- name: worker_beat
INSERT INTO {workers} (id, kind, name, detail, started_at, seen_at)
VALUES (:id, :kind, :name, :detail, clock_timestamp(), clock_timestamp())
ON CONFLICT (id) DO UPDATE SET seen_at = clock_timestamp();

-- name: workers_alive
SELECT id, kind, name, detail, started_at, seen_at FROM {workers}
 WHERE seen_at > clock_timestamp() - make_interval(secs => :ttl) ORDER BY kind, name;

-- name: workers_forget
DELETE FROM {workers} WHERE seen_at < clock_timestamp() - make_interval(secs => :ttl);

-- name: pause_add
INSERT INTO {pauses} (kind, name, actor, reason, since) VALUES (:kind, :name, :actor, :reason, :now)
ON CONFLICT (kind, name) DO NOTHING;
