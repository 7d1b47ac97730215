-- name: projection_declare
INSERT INTO {projections} (name) VALUES (:name) ON CONFLICT (name) DO NOTHING;

-- name: projection_fence
-- Shared: those who change the projection do not hinder each other, nor a rebuild's progress; but a rebuild begins and
-- ends between them, because it excludes them all from the table.
SELECT state FROM {projections} WHERE name = :name FOR KEY SHARE;

-- name: projection_exclude
-- The table, not the row: who waits for a row that others share in turns may wait for ever.
LOCK TABLE {projections} IN EXCLUSIVE MODE;

-- name: projection_lock
SELECT generation FROM {projections} WHERE name = :name AND token = :token FOR UPDATE;

-- name: projection_begin
UPDATE {projections}
   SET state = 'rebuilding', generation = generation + 1, token = :token, progress = 0, total = 0,
       started_at = clock_timestamp(), expires_at = clock_timestamp() + make_interval(secs => CAST(:seconds AS double precision))
 WHERE name = :name AND (token IS NULL OR expires_at <= clock_timestamp());

-- name: projection_advance
-- By token: whoever was taken over must not go on writing.
UPDATE {projections} SET progress = :progress, total = :total, expires_at = clock_timestamp() + make_interval(secs => CAST(:seconds AS double precision))
 WHERE name = :name AND token = :token;

-- name: projections_lapsed
SELECT name FROM {projections} WHERE state = 'rebuilding' AND expires_at <= clock_timestamp();

-- name: projection_lapse
UPDATE {projections} SET state = 'live', token = NULL, expires_at = NULL
 WHERE name = :name AND state = 'rebuilding' AND expires_at <= clock_timestamp();

-- name: journal_forget
DELETE FROM {journal} WHERE position = ANY(CAST(:positions AS bigint[]));

-- name: backfill_begin
INSERT INTO {backfills} (name, started_at) VALUES (:name, clock_timestamp()) ON CONFLICT (name) DO NOTHING;

-- name: backfill_lock
SELECT place, snapshots, ended_at FROM {backfills} WHERE name = :name FOR UPDATE;

-- name: backfill_end
UPDATE {backfills} SET ended_at = clock_timestamp() WHERE name = :name;
