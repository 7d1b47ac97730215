-- name: projection_declare
INSERT IGNORE INTO {projections} (name) VALUES (:name);

-- name: projection_fence
-- Shared: those who change the projection do not hinder each other, but a rebuild begins and ends between them.
SELECT state FROM {projections} WHERE name = :name LOCK IN SHARE MODE;

-- name: projection_exclude
-- The row's lock, which is taken next, is given in the order of asking.
SELECT 1 AS excluded;

-- name: projection_lock
SELECT generation FROM {projections} WHERE name = :name AND token = :token FOR UPDATE;

-- name: projection_begin
UPDATE {projections}
   SET state = 'rebuilding', generation = generation + 1, token = :token, progress = 0, total = 0,
       started_at = UTC_TIMESTAMP(6), expires_at = UTC_TIMESTAMP(6) + INTERVAL ROUND(:seconds * 1000000) MICROSECOND
 WHERE name = :name AND (token IS NULL OR expires_at <= UTC_TIMESTAMP(6));

-- name: projection_advance
-- By token: whoever was taken over must not go on writing.
UPDATE {projections} SET progress = :progress, total = :total, expires_at = UTC_TIMESTAMP(6) + INTERVAL ROUND(:seconds * 1000000) MICROSECOND
 WHERE name = :name AND token = :token;

-- name: projections_lapsed
SELECT name FROM {projections} WHERE state = 'rebuilding' AND expires_at <= UTC_TIMESTAMP(6);

-- name: projection_lapse
UPDATE {projections} SET state = 'live', token = NULL, expires_at = NULL
 WHERE name = :name AND state = 'rebuilding' AND expires_at <= UTC_TIMESTAMP(6);

-- name: journal_forget
DELETE e FROM JSON_TABLE(:positions, '$[*]' COLUMNS (position BIGINT PATH '$')) p
  STRAIGHT_JOIN {journal} e ON e.position = p.position;

-- name: backfill_begin
INSERT IGNORE INTO {backfills} (name, started_at) VALUES (:name, UTC_TIMESTAMP(6));

-- name: backfill_lock
SELECT place, snapshots, ended_at FROM {backfills} WHERE name = :name FOR UPDATE;

-- name: backfill_end
UPDATE {backfills} SET ended_at = UTC_TIMESTAMP(6) WHERE name = :name;
