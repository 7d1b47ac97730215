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
CALL {next}(:shards, :after, :depth, :most, :inline);

-- name: read_payloads
SELECT {event_id} AS event_id, {payload_out} AS payload FROM {outbox}
 WHERE {event_id} IN (SELECT {id_in_list} FROM JSON_TABLE(:ids, '$[*]' COLUMNS (id VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$')) j);

-- name: mark_sent
-- Settle by lease, not by id alone: a slow relay must not undo what its successor did.
-- The ids' collation is the one that can be compared with any other.
-- A relay that was sending while a person skipped the event has the last word: it was sent.
UPDATE {delivery} d
  JOIN (SELECT i.id, s.shard, e.epoch
          FROM JSON_TABLE(:ids, '$[*]' COLUMNS (n FOR ORDINALITY, id VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$')) i
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

-- name: prunable_skipped
SELECT d.{delivery_event_id} AS event_id FROM {delivery} d
 WHERE d.{state} = 'SKIPPED' AND d.{published_at} < UTC_TIMESTAMP(6) - INTERVAL :older_than * 1000000 MICROSECOND
 ORDER BY d.{published_at} LIMIT :most FOR UPDATE SKIP LOCKED;

-- name: prune_sent
-- By their ids: with IN, MariaDB would read the whole table and lock it, waiting for everybody who writes.
DELETE d FROM JSON_TABLE(:ids, '$[*]' COLUMNS (id VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$')) j
  STRAIGHT_JOIN {delivery} d ON d.{delivery_event_id} = {id_in_list};

-- name: prune_facts
DELETE x FROM JSON_TABLE(:ids, '$[*]' COLUMNS (id VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$')) j
  STRAIGHT_JOIN {outbox} x ON x.{event_id} = {id_in_list};
