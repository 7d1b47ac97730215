-- name: worker_beat
INSERT INTO {workers} (id, kind, name, detail, started_at, seen_at)
VALUES (:id, :kind, :name, :detail, postroad_now(), postroad_now())
ON CONFLICT (id) DO UPDATE SET seen_at = postroad_now();

-- name: workers_alive
SELECT id, kind, name, detail, started_at, seen_at FROM {workers} WHERE seen_at > postroad_in(-:ttl) ORDER BY kind, name;

-- name: workers_forget
DELETE FROM {workers} WHERE seen_at < postroad_in(-:ttl);

-- name: pause_add
INSERT INTO {pauses} (kind, name, actor, reason, since) VALUES (:kind, :name, :actor, :reason, :now)
ON CONFLICT (kind, name) DO NOTHING;
