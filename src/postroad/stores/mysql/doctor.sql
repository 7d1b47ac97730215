-- name: clock_read
SELECT UTC_TIMESTAMP(6) AS now;

-- name: settings_read
SELECT 'sql_mode' AS name, CAST(@@sql_mode AS CHAR) AS value
UNION ALL SELECT 'autocommit', CAST(@@global.autocommit AS CHAR)
UNION ALL SELECT 'read_only', CAST(@@global.read_only AS CHAR)
UNION ALL SELECT 'innodb_flush_log_at_trx_commit', CAST(@@global.innodb_flush_log_at_trx_commit AS CHAR)
UNION ALL SELECT 'binlog_format', IF(@@global.log_bin, CAST(@@global.binlog_format AS CHAR), '');

-- name: snapshot_holders
-- trx_started is told in the server's own time zone, whatever the session's is.
SELECT 'session' AS kind, CAST(t.trx_mysql_thread_id AS CHAR) AS name,
       TIMESTAMPDIFF(SECOND, t.trx_started, CONVERT_TZ(NOW(), @@time_zone, 'SYSTEM')) AS seconds,
       CONCAT('KILL ', t.trx_mysql_thread_id) AS command
  FROM information_schema.innodb_trx t
 WHERE t.trx_mysql_thread_id <> CONNECTION_ID()
   AND t.trx_started <= CONVERT_TZ(NOW(), @@time_zone, 'SYSTEM') - INTERVAL :seconds * 1000000 MICROSECOND;

-- name: snapshot_right
-- What lets this user see the holders.
SELECT CONCAT('GRANT PROCESS ON *.* TO ''', SUBSTRING_INDEX(CURRENT_USER(), '@', 1), '''@''',
              SUBSTRING_INDEX(CURRENT_USER(), '@', -1), '''') AS command;

-- name: catalog_keys
SELECT s.index_name AS name, MIN(s.non_unique) = 0 AS is_unique, 0 AS is_partial, 1 AS is_valid,
       GROUP_CONCAT(s.column_name ORDER BY s.seq_in_index) AS covers
  FROM information_schema.statistics s
 WHERE s.table_schema = IF(:schema_name = '', DATABASE(), :schema_name) AND s.table_name = :table_name
 GROUP BY s.index_name;

-- name: catalog_routine
SELECT 1 AS found FROM information_schema.routines r
 WHERE r.routine_schema = IF(:schema_name = '', DATABASE(), :schema_name) AND r.routine_name = :routine_name
 LIMIT 1;

-- name: shard_leases
SELECT shard, owner, token, CASE WHEN token IS NOT NULL AND expires_at > UTC_TIMESTAMP(6) THEN 1 ELSE 0 END AS held
  FROM {shards} WHERE outbox = :outbox_name;

-- name: inbox_overdue
-- The statuses are named, so that the index on them serves.
SELECT late.consumer_group AS consumer_group, COUNT(*) AS records
  FROM (SELECT i.consumer_group FROM {inbox} i
         WHERE i.status IN (0, 2) AND ((i.status = 2 AND i.next_retry_at < UTC_TIMESTAMP(6) - INTERVAL :seconds * 1000000 MICROSECOND)
            OR (i.status = 0 AND i.locked_until < UTC_TIMESTAMP(6) - INTERVAL :seconds * 1000000 MICROSECOND))
         LIMIT :most) late
 GROUP BY late.consumer_group ORDER BY late.consumer_group;

-- name: foreign_keys_out
SELECT k.constraint_name AS name, CONCAT(k.constraint_schema, '.', k.table_name) AS from_table,
       CONCAT(k.unique_constraint_schema, '.', k.referenced_table_name) AS to_table,
       CONCAT('ALTER TABLE ', k.constraint_schema, '.', k.table_name, ' DROP FOREIGN KEY ', k.constraint_name) AS command
  FROM information_schema.referential_constraints k
 WHERE k.constraint_schema <> k.unique_constraint_schema
   AND DATABASE() IN (k.constraint_schema, k.unique_constraint_schema)
 ORDER BY k.constraint_name LIMIT :most;

-- name: written_elsewhere
-- What is granted for all databases at once is told by `rights_read`.
SELECT DISTINCT CONCAT(g.place, '.', g.tables) AS name,
       CONCAT('REVOKE INSERT, UPDATE, DELETE ON ', g.place, '.', g.tables, ' FROM ', g.grantee) AS command
  FROM (SELECT p.grantee AS grantee, p.privilege_type AS privilege, p.table_schema AS place, '*' AS tables
          FROM information_schema.schema_privileges p
        UNION ALL
        SELECT p.grantee, p.privilege_type, p.table_schema, p.table_name
          FROM information_schema.table_privileges p) g
 WHERE g.grantee = CONCAT('''', SUBSTRING_INDEX(CURRENT_USER(), '@', 1), '''@''', SUBSTRING_INDEX(CURRENT_USER(), '@', -1), '''')
   AND g.privilege IN ('INSERT', 'UPDATE', 'DELETE') AND DATABASE() NOT LIKE g.place
 ORDER BY name LIMIT :most;

-- name: rights_read
SELECT p.privilege_type AS name FROM information_schema.user_privileges p
 WHERE p.grantee = CONCAT('''', SUBSTRING_INDEX(CURRENT_USER(), '@', 1), '''@''', SUBSTRING_INDEX(CURRENT_USER(), '@', -1), '''')
   AND p.privilege_type IN ('SUPER', 'FILE', 'SHUTDOWN', 'CREATE USER', 'INSERT', 'UPDATE', 'DELETE')
 ORDER BY p.privilege_type;
