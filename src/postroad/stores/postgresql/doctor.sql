-- name: clock_read
SELECT clock_timestamp() AS now;

-- name: settings_read
SELECT name, setting AS value FROM pg_settings
 WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit', 'transaction_read_only',
                'default_transaction_isolation');

-- name: snapshot_holders
-- A session of another database holds back nothing here; what vacuums itself is not counted by the server.
-- Of other users' sessions only a reader of statistics is told more than that they exist.
SELECT 'session' AS kind, CAST(a.pid AS text) AS name,
       EXTRACT(epoch FROM clock_timestamp() - a.xact_start) AS seconds,
       'SELECT pg_terminate_backend(' || a.pid || ')' AS command
  FROM pg_stat_activity a
 WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND a.backend_type NOT LIKE 'autovacuum%'
   AND (a.backend_xid IS NOT NULL OR a.backend_xmin IS NOT NULL)
   AND a.xact_start < clock_timestamp() - make_interval(secs => CAST(:seconds AS double precision))
   AND NOT EXISTS (SELECT 1 FROM pg_stat_progress_vacuum v WHERE v.pid = a.pid)
UNION ALL
SELECT 'prepared transaction', p.gid, EXTRACT(epoch FROM clock_timestamp() - p.prepared),
       'ROLLBACK PREPARED ' || quote_literal(p.gid)
  FROM pg_prepared_xacts p
 WHERE p.database = current_database()
   AND p.prepared < clock_timestamp() - make_interval(secs => CAST(:seconds AS double precision))
UNION ALL
SELECT 'replication slot', CAST(s.slot_name AS text), NULL,
       'SELECT pg_drop_replication_slot(' || quote_literal(s.slot_name) || ')'
  FROM pg_replication_slots s
 WHERE NOT s.active AND COALESCE(s.database, current_database()) = current_database()
   AND (s.xmin IS NOT NULL OR s.catalog_xmin IS NOT NULL OR s.restart_lsn IS NOT NULL)
UNION ALL
SELECT 'hidden', CAST(COUNT(*) AS text), NULL, ''
  FROM pg_stat_activity h
 WHERE h.datname = current_database() AND h.query = '<insufficient privilege>'
HAVING COUNT(*) > 0;

-- name: snapshot_right
-- What lets this user see the holders.
SELECT 'GRANT pg_read_all_stats TO ' || quote_ident(current_user) AS command;

-- name: catalog_keys
SELECT i.relname AS name, x.indisunique AS is_unique, x.indpred IS NOT NULL AS is_partial, x.indisvalid AS is_valid,
       (SELECT string_agg(a.attname, ',' ORDER BY k.place)
          FROM unnest(CAST(x.indkey AS int2[])) WITH ORDINALITY AS k(attnum, place)
          JOIN pg_attribute a ON a.attrelid = x.indrelid AND a.attnum = k.attnum) AS covers
  FROM pg_index x
  JOIN pg_class i ON i.oid = x.indexrelid
 WHERE x.indrelid = to_regclass(CASE WHEN CAST(:schema_name AS text) = '' THEN '' ELSE quote_ident(CAST(:schema_name AS text)) || '.' END
                                || quote_ident(CAST(:table_name AS text)));

-- name: catalog_routine
SELECT 1 AS found FROM pg_proc p
 WHERE p.proname = CAST(:routine_name AS text)
   AND CASE WHEN CAST(:schema_name AS text) = '' THEN pg_function_is_visible(p.oid)
            ELSE p.pronamespace = to_regnamespace(quote_ident(CAST(:schema_name AS text))) END
 LIMIT 1;

-- name: shard_leases
SELECT shard, owner, token, CASE WHEN token IS NOT NULL AND expires_at > clock_timestamp() THEN 1 ELSE 0 END AS held
  FROM {shards} WHERE outbox = :outbox_name;

-- name: inbox_overdue
SELECT late.consumer_group AS consumer_group, COUNT(*) AS records
  FROM (SELECT i.consumer_group FROM {inbox} i
         WHERE i.status <> 1 AND ((i.status = 2 AND i.next_retry_at < clock_timestamp() - make_interval(secs => CAST(:seconds AS double precision)))
            OR (i.status = 0 AND i.locked_until < clock_timestamp() - make_interval(secs => CAST(:seconds AS double precision))))
         LIMIT :most) late
 GROUP BY late.consumer_group ORDER BY late.consumer_group;

-- name: foreign_keys_out
-- Of tables in the service's schema, or to them.
SELECT k.conname AS name, CAST(CAST(k.conrelid AS regclass) AS text) AS from_table,
       CAST(CAST(k.confrelid AS regclass) AS text) AS to_table,
       'ALTER TABLE ' || CAST(k.conrelid AS regclass) || ' DROP CONSTRAINT ' || quote_ident(k.conname) AS command
  FROM pg_constraint k
  JOIN pg_class c ON c.oid = k.conrelid
  JOIN pg_class f ON f.oid = k.confrelid
 WHERE k.contype = 'f' AND c.relnamespace <> f.relnamespace
   AND (SELECT relnamespace FROM pg_class WHERE oid = to_regclass('{inbox}')) IN (c.relnamespace, f.relnamespace)
 ORDER BY k.conname LIMIT :most;

-- name: written_elsewhere
-- A superuser may do everything everywhere: his grants tell nothing.
SELECT n.nspname || '.' || c.relname AS name,
       'REVOKE INSERT, UPDATE, DELETE ON ' || CAST(c.oid AS regclass) || ' FROM ' || quote_ident(current_user) AS command
  FROM pg_class c
  JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.relkind IN ('r', 'p') AND n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg\_%'
   AND n.oid <> (SELECT relnamespace FROM pg_class WHERE oid = to_regclass('{inbox}'))
   AND NOT (SELECT rolsuper FROM pg_roles WHERE rolname = current_user)
   AND has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'INSERT, UPDATE, DELETE')
 ORDER BY 1 LIMIT :most;

-- name: rights_read
SELECT r.name FROM pg_roles
  CROSS JOIN LATERAL (VALUES ('SUPERUSER', rolsuper), ('CREATEROLE', rolcreaterole), ('CREATEDB', rolcreatedb),
                             ('REPLICATION', rolreplication), ('BYPASSRLS', rolbypassrls)) AS r(name, given)
 WHERE rolname = current_user AND r.given;
