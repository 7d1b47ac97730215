-- name: clock_read
SELECT postroad_now() AS now;

-- name: settings_read
SELECT 'journal_mode' AS name, journal_mode AS value FROM pragma_journal_mode;

-- name: snapshot_holders
-- A file knows nothing of those who read it.
SELECT '' AS kind, '' AS name, 0 AS seconds, '' AS command WHERE :seconds IS NULL;

-- name: snapshot_right
SELECT '' AS command;

-- name: catalog_keys
SELECT l.name AS name, l."unique" AS is_unique, l.partial AS is_partial, 1 AS is_valid,
       (SELECT group_concat(c.name) FROM (SELECT i.name FROM pragma_index_info(l.name) i ORDER BY i.seqno) c) AS covers
  FROM pragma_index_list(:table_name) l WHERE :schema_name = '';

-- name: catalog_routine
-- Views with triggers stand for routines here.
SELECT 1 AS found FROM sqlite_master
 WHERE type IN ('view', 'trigger') AND name = :routine_name AND :schema_name = '' LIMIT 1;

-- name: shard_leases
SELECT shard, owner, token, CASE WHEN token IS NOT NULL AND expires_at > postroad_now() THEN 1 ELSE 0 END AS held
  FROM {shards} WHERE outbox = :outbox_name;

-- name: inbox_overdue
SELECT late.consumer_group AS consumer_group, COUNT(*) AS records
  FROM (SELECT i.consumer_group FROM {inbox} i
         WHERE i.status <> 1 AND ((i.status = 2 AND i.next_retry_at < postroad_in(-:seconds))
            OR (i.status = 0 AND i.locked_until < postroad_in(-:seconds)))
         LIMIT :most) late
 GROUP BY late.consumer_group ORDER BY late.consumer_group;

-- name: foreign_keys_out
-- One file, one owner: there are no schemas to leave, and no users with rights.
SELECT '' AS name, '' AS from_table, '' AS to_table, '' AS command WHERE :most IS NULL;

-- name: written_elsewhere
SELECT '' AS name, '' AS command WHERE :most IS NULL;

-- name: rights_read
SELECT '' AS name WHERE 1 = 0;
