-- name: projection_declare
INSERT INTO {projections} (name) VALUES (:name) ON CONFLICT (name) DO NOTHING;

-- name: projection_fence
-- Shared: those who change the projection do not hinder each other, but a rebuild begins and ends between them.
SELECT state FROM {projections} WHERE name = :name;

-- name: projection_exclude
-- The file has one writer already.
SELECT 1 AS excluded;

-- name: projection_lock
SELECT generation FROM {projections} WHERE name = :name AND token = :token;

-- name: projection_begin
UPDATE {projections}
   SET state = 'rebuilding', generation = generation + 1, token = :token, progress = 0, total = 0,
       started_at = postroad_now(), expires_at = postroad_in(:seconds)
 WHERE name = :name AND (token IS NULL OR expires_at <= postroad_now());

-- name: projection_advance
-- By token: whoever was taken over must not go on writing.
UPDATE {projections} SET progress = :progress, total = :total, expires_at = postroad_in(:seconds)
 WHERE name = :name AND token = :token;

-- name: projections_lapsed
SELECT name FROM {projections} WHERE state = 'rebuilding' AND expires_at <= postroad_now();

-- name: projection_lapse
UPDATE {projections} SET state = 'live', token = NULL, expires_at = NULL
 WHERE name = :name AND state = 'rebuilding' AND expires_at <= postroad_now();

-- name: journal_forget
DELETE FROM {journal} WHERE position IN (SELECT value FROM json_each(:positions));

-- name: backfill_begin
INSERT INTO {backfills} (name, started_at) VALUES (:name, postroad_now()) ON CONFLICT (name) DO NOTHING;

-- name: backfill_lock
SELECT place, snapshots, ended_at FROM {backfills} WHERE name = :name;

-- name: backfill_end
UPDATE {backfills} SET ended_at = postroad_now() WHERE name = :name;
