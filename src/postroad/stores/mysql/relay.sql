-- name: lease_renew
UPDATE {shards} SET expires_at = UTC_TIMESTAMP(6) + INTERVAL :ttl * 1000000 MICROSECOND
 WHERE outbox = :outbox_name AND token = :token;

-- name: lease_free
SELECT shard FROM {shards}
 WHERE outbox = :outbox_name AND (token IS NULL OR expires_at <= UTC_TIMESTAMP(6))
 ORDER BY shard LIMIT :most FOR UPDATE SKIP LOCKED;

-- name: lease_take
UPDATE {shards}
   SET owner = :owner, token = :token, epoch = epoch + 1, expires_at = UTC_TIMESTAMP(6) + INTERVAL :ttl * 1000000 MICROSECOND
 WHERE outbox = :outbox_name
   AND shard IN (SELECT j.shard FROM JSON_TABLE(:shards, '$[*]' COLUMNS (shard SMALLINT PATH '$')) j);

-- name: lease_release
UPDATE {shards} SET owner = NULL, token = NULL, expires_at = NULL
 WHERE outbox = :outbox_name AND token = :token
   AND shard IN (SELECT j.shard FROM JSON_TABLE(:shards, '$[*]' COLUMNS (shard SMALLINT PATH '$')) j);

-- name: relays_alive
SELECT count(*) AS alive FROM {workers}
 WHERE kind = 'relay' AND detail = :outbox_name AND seen_at > UTC_TIMESTAMP(6) - INTERVAL :ttl * 1000000 MICROSECOND;

-- name: read_due
-- Key heads by skip-scan: one index probe per key, however long its backlog. A head that is parked or waits for
-- its next attempt holds back its key and is still listed, so that the reader's cursor passes it.
WITH RECURSIVE places AS (
  SELECT s.shard, a.after
    FROM JSON_TABLE(:shards, '$[*]' COLUMNS (n FOR ORDINALITY, shard SMALLINT PATH '$')) s
    JOIN JSON_TABLE(:after, '$[*]' COLUMNS (n FOR ORDINALITY, after VARCHAR(520) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$')) a ON a.n = s.n
), `keys` AS (
  SELECT p.shard, 1 AS depth, (
           SELECT d.{ordering_key} FROM {delivery} d
            WHERE d.unsent_shard = p.shard AND d.{ordering_key} > p.after
            ORDER BY d.{ordering_key} LIMIT 1) AS ordering_key
    FROM places p
  UNION ALL
  SELECT k.shard, k.depth + 1, (
           SELECT d.{ordering_key} FROM {delivery} d
            WHERE d.unsent_shard = k.shard AND d.{ordering_key} > k.ordering_key
            ORDER BY d.{ordering_key} LIMIT 1)
    FROM `keys` k WHERE k.ordering_key IS NOT NULL AND k.depth < :depth
), firsts AS (
  SELECT k.shard, k.ordering_key, (
           SELECT d.{delivery_version} FROM {delivery} d
            WHERE d.unsent_shard = k.shard AND d.{ordering_key} = k.ordering_key
            ORDER BY d.{delivery_version} LIMIT 1) AS version
    FROM `keys` k WHERE k.ordering_key IS NOT NULL
), heads AS (
  SELECT f.shard, f.ordering_key, f.version,
         d.{state} <> 'FAILED' AND (d.{next_attempt_at} IS NULL OR d.{next_attempt_at} <= UTC_TIMESTAMP(6)) AS due
    FROM firsts f
    JOIN {delivery} d ON d.unsent_shard = f.shard AND d.{ordering_key} = f.ordering_key AND d.{delivery_version} = f.version
)
SELECT h.shard, h.ordering_key, {o}.{event_id} AS event_id, d.{state} AS state, d.{attempts} AS attempts,
       {o}.{version} AS version, {o}.{topic} AS topic, {o}.{event_type} AS event_type,
       {o}.{aggregate_type} AS aggregate_type, {o}.{aggregate_id} AS aggregate_id,
       {o}.{schema_version} AS schema_version, {payload_out} AS payload, {o}.{content_type} AS content_type,
       {o}.{tenant_id} AS tenant_id, {o}.{correlation_id} AS correlation_id, {o}.{causation_id} AS causation_id,
       {o}.{attributes} AS attributes, {o}.{occurred_at} AS occurred_at, {o}.{deliver_at} AS deliver_at
  FROM heads h
  LEFT JOIN {delivery} d
    ON h.due AND d.unsent_shard = h.shard AND d.{ordering_key} = h.ordering_key AND d.{delivery_version} >= h.version
   AND d.{delivery_version} < h.version + GREATEST(1, :most DIV GREATEST(1, (SELECT count(*) FROM heads x WHERE x.due)))
  {join_facts}
 ORDER BY h.shard, h.ordering_key, d.{delivery_version};

-- name: mark_sent
-- Settle by lease, not by id alone: a slow relay must not undo what its successor did.
-- The ids' collation is the one that can be compared with any other.
-- A relay that was sending while a person skipped the event has the last word: it was sent.
UPDATE {delivery} d
  JOIN (SELECT i.id, s.shard, e.epoch
          FROM JSON_TABLE(:ids, '$[*]' COLUMNS (n FOR ORDINALITY, id VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$')) i
          JOIN JSON_TABLE(:shards, '$[*]' COLUMNS (n FOR ORDINALITY, shard SMALLINT PATH '$')) s ON s.n = i.n
          JOIN JSON_TABLE(:epochs, '$[*]' COLUMNS (n FOR ORDINALITY, epoch BIGINT PATH '$')) e ON e.n = i.n) j
    ON d.{delivery_event_id} = {id_in_list}
  JOIN {shards} l ON l.outbox = :outbox_name AND l.shard = j.shard AND l.token = :token AND l.epoch = j.epoch
   SET d.{state} = 'SENT', d.{published_at} = UTC_TIMESTAMP(6), d.{last_error} = NULL
 WHERE d.{state} <> 'SENT';

-- name: mark_failed
UPDATE {delivery} d
  JOIN {shards} l ON l.outbox = :outbox_name AND l.shard = d.{shard} AND l.token = :token AND l.epoch = :epoch
   SET d.{state} = :state, d.{attempts} = d.{attempts} + 1, d.{last_error} = :error,
       d.{next_attempt_at} = UTC_TIMESTAMP(6) + INTERVAL :wait * 1000000 MICROSECOND
 WHERE d.{delivery_event_id} = :event_id AND d.{state} NOT IN ('SENT', 'SKIPPED');

-- name: adoption_turn
-- Of the relays, the holder of shard 0 sorts in what other programs wrote; the row lock makes them take turns.
SELECT shard FROM {shards} WHERE outbox = :outbox_name AND shard = 0 AND token = :token FOR UPDATE;

-- name: unsharded
-- What other programs wrote into an adopted table: it lacks what only Postroad knows. Lower versions first, so that
-- none of them is still missing when a higher one can be sent.
SELECT d.{delivery_event_id} AS event_id, {o}.{aggregate_type} AS aggregate_type, {o}.{aggregate_id} AS aggregate_id,
       d.{delivery_version} AS version
  FROM {delivery} d {join_facts}
 WHERE d.unsent_shard = -1
 ORDER BY d.{delivery_version}, {arrival} LIMIT :most;

-- name: version_follow
-- Count on by one, or up to the version that somebody else gave.
INSERT INTO {versions} (aggregate_type, aggregate_id, version) VALUES (:aggregate_type, :aggregate_id, COALESCE(:version, 1))
ON DUPLICATE KEY UPDATE version = COALESCE(GREATEST(version, :version), version + 1);

-- name: prunable
-- Never what is unsent, or parked for a person.
SELECT d.{delivery_event_id} AS event_id FROM {delivery} d
 WHERE d.{state} = 'SENT' AND d.{published_at} < UTC_TIMESTAMP(6) - INTERVAL :older_than * 1000000 MICROSECOND
 ORDER BY d.{published_at} LIMIT :most FOR UPDATE SKIP LOCKED;

-- name: prune_sent
DELETE FROM {delivery} WHERE {delivery_event_id} IN (SELECT {id_in_list} FROM JSON_TABLE(:ids, '$[*]' COLUMNS (id VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$')) j);

-- name: prune_facts
DELETE FROM {outbox} WHERE {event_id} IN (SELECT {id_in_list} FROM JSON_TABLE(:ids, '$[*]' COLUMNS (id VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$')) j);
