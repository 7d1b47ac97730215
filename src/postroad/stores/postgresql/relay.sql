-- name: lease_renew
UPDATE {shards} SET expires_at = clock_timestamp() + make_interval(secs => :ttl)
 WHERE outbox = :outbox_name AND token = :token;

-- name: lease_free
SELECT shard FROM {shards}
 WHERE outbox = :outbox_name AND (token IS NULL OR expires_at <= clock_timestamp())
 ORDER BY shard LIMIT :most FOR UPDATE SKIP LOCKED;

-- name: lease_take
UPDATE {shards}
   SET owner = :owner, token = :token, epoch = epoch + 1, expires_at = clock_timestamp() + make_interval(secs => :ttl)
 WHERE outbox = :outbox_name AND shard = ANY(CAST(:shards AS smallint[]));

-- name: lease_release
UPDATE {shards} SET owner = NULL, token = NULL, expires_at = NULL
 WHERE outbox = :outbox_name AND token = :token AND shard = ANY(CAST(:shards AS smallint[]));

-- name: relays_alive
SELECT count(*) AS alive FROM {workers}
 WHERE kind = 'relay' AND detail = :outbox_name AND seen_at > clock_timestamp() - make_interval(secs => :ttl);

-- name: read_due
-- Shards with something unsent, then their key heads, both by skip-scan: one index probe for each, however long the
-- backlog. A head that is parked or waits for its next attempt holds back its key and is still listed, so that the
-- reader's cursor passes it. A large payload is left out: the reader fetches as many as it can hold.
WITH RECURSIVE waiting AS (
  (SELECT d.{shard} AS shard FROM {delivery} d
    WHERE d.{state} NOT IN ('SENT', 'SKIPPED') AND d.{shard} >= 0 ORDER BY d.{shard} LIMIT 1)
  UNION ALL
  SELECT n.shard FROM waiting w
    CROSS JOIN LATERAL (
      SELECT d.{shard} AS shard FROM {delivery} d
       WHERE d.{state} NOT IN ('SENT', 'SKIPPED') AND d.{shard} > w.shard ORDER BY d.{shard} LIMIT 1) n
), heads AS (
  SELECT s.shard, 1 AS depth, n.ordering_key, n.due
    FROM waiting w
    JOIN unnest(CAST(:shards AS smallint[]), CAST(:after AS text[])) AS s(shard, after) ON s.shard = w.shard
    CROSS JOIN LATERAL (
      SELECT d.{ordering_key} AS ordering_key,
             d.{state} <> 'FAILED' AND COALESCE(d.{next_attempt_at} <= clock_timestamp(), true) AS due FROM {delivery} d
       WHERE d.{shard} = s.shard AND d.{state} NOT IN ('SENT', 'SKIPPED') AND d.{ordering_key} > COALESCE(s.after, '')
       ORDER BY d.{ordering_key}, d.{delivery_version} LIMIT 1) n
  UNION ALL
  SELECT h.shard, h.depth + 1, n.ordering_key, n.due
    FROM heads h
    CROSS JOIN LATERAL (
      SELECT d.{ordering_key} AS ordering_key,
             d.{state} <> 'FAILED' AND COALESCE(d.{next_attempt_at} <= clock_timestamp(), true) AS due FROM {delivery} d
       WHERE d.{shard} = h.shard AND d.{state} NOT IN ('SENT', 'SKIPPED') AND d.{ordering_key} > h.ordering_key
       ORDER BY d.{ordering_key}, d.{delivery_version} LIMIT 1) n
   WHERE h.depth < :depth
)
SELECT h.shard, h.ordering_key, r.*
  FROM heads h
  LEFT JOIN LATERAL (
    SELECT {o}.{event_id} AS event_id, d.{state} AS state, d.{attempts} AS attempts, {o}.{version} AS version,
           {o}.{topic} AS topic, {o}.{event_type} AS event_type, {o}.{aggregate_type} AS aggregate_type,
           {o}.{aggregate_id} AS aggregate_id, {o}.{schema_version} AS schema_version,
           octet_length({payload_out}) AS size,
           CASE WHEN octet_length({payload_out}) <= :inline THEN {payload_out} END AS payload,
           {o}.{content_type} AS content_type, {o}.{tenant_id} AS tenant_id, {o}.{correlation_id} AS correlation_id,
           {o}.{causation_id} AS causation_id, {o}.{attributes} AS attributes, {o}.{occurred_at} AS occurred_at,
           {o}.{deliver_at} AS deliver_at
      FROM {delivery} d {join_facts}
     WHERE h.due AND d.{shard} = h.shard AND d.{ordering_key} = h.ordering_key AND d.{state} NOT IN ('SENT', 'SKIPPED')
     ORDER BY d.{delivery_version}
     LIMIT GREATEST(1, :most / GREATEST(1, (SELECT count(*) FROM heads x WHERE x.due)))
  ) r ON true
 ORDER BY h.shard, h.ordering_key, r.version;

-- name: read_payloads
SELECT {event_id} AS event_id, {payload_out} AS payload FROM {outbox}
 WHERE {event_id} IN (SELECT {id_in_list} FROM unnest(CAST(:ids AS text[])) AS j(id));

-- name: mark_sent
-- Settle by lease, not by id alone: a slow relay must not undo what its successor did.
-- A relay that was sending while a person skipped the event has the last word: it was sent.
-- The lease is looked up for each row: a join would be planned for ten rows, and compare a thousand with every shard.
UPDATE {delivery}
   SET {state} = 'SENT', {published_at} = clock_timestamp(), {last_error} = NULL
 WHERE {state} <> 'SENT' AND {delivery_event_id} = ANY (ARRAY(
   SELECT {id_in_list}
     FROM unnest(CAST(:ids AS text[]), CAST(:shards AS smallint[]), CAST(:epochs AS bigint[])) AS j(id, shard, epoch)
    WHERE j.epoch = (SELECT l.epoch FROM {shards} l
                      WHERE l.outbox = :outbox_name AND l.shard = j.shard AND l.token = :token)));

-- name: mark_failed
UPDATE {delivery} AS d
   SET {state} = CAST(:state AS text), {attempts} = {attempts} + 1, {last_error} = :error,
       {next_attempt_at} = clock_timestamp() + make_interval(secs => CAST(:wait AS double precision))
  FROM {shards} l
 WHERE d.{delivery_event_id} = :event_id AND d.{state} NOT IN ('SENT', 'SKIPPED')
   AND l.outbox = :outbox_name AND l.shard = d.{shard} AND l.token = :token AND l.epoch = :epoch;

-- name: adoption_turn
-- Of the relays, the holder of shard 0 sorts in what other programs wrote; the row lock makes them take turns.
SELECT shard FROM {shards} WHERE outbox = :outbox_name AND shard = 0 AND token = :token FOR UPDATE;

-- name: unsharded
-- What other programs wrote into an adopted table: it lacks what only Postroad knows. Lower versions first, so that
-- none of them is still missing when a higher one can be sent.
SELECT d.{delivery_event_id} AS event_id, {o}.{aggregate_type} AS aggregate_type, {o}.{aggregate_id} AS aggregate_id,
       d.{delivery_version} AS version
  FROM {delivery} d {join_facts}
 WHERE d.{shard} IS NULL AND d.{state} NOT IN ('SENT', 'SKIPPED')
 ORDER BY d.{delivery_version}, {arrival} LIMIT :most;

-- name: version_follow
-- Count on by one, or up to the version that somebody else gave.
INSERT INTO {versions} (aggregate_type, aggregate_id, version) VALUES (:aggregate_type, :aggregate_id, COALESCE(CAST(:version AS bigint), 1))
ON CONFLICT (aggregate_type, aggregate_id)
DO UPDATE SET version = CASE WHEN CAST(:version AS bigint) IS NULL THEN {versions}.version + 1
                             ELSE GREATEST({versions}.version, CAST(:version AS bigint)) END;

-- name: prunable
-- Never what is unsent, or parked for a person. now() and not clock_timestamp(): only a stable function can be looked up
-- in the index.
SELECT d.{delivery_event_id} AS event_id FROM {delivery} d
 WHERE d.{state} = 'SENT' AND d.{published_at} < now() - make_interval(secs => :older_than)
 ORDER BY d.{published_at} LIMIT :most
   FOR UPDATE SKIP LOCKED;

-- name: prunable_skipped
SELECT d.{delivery_event_id} AS event_id FROM {delivery} d
 WHERE d.{state} = 'SKIPPED' AND d.{published_at} < now() - make_interval(secs => :older_than)
 ORDER BY d.{published_at} LIMIT :most
   FOR UPDATE SKIP LOCKED;

-- name: prune_sent
DELETE FROM {delivery} WHERE {delivery_event_id} IN (SELECT {id_in_list} FROM unnest(CAST(:ids AS text[])) AS j(id));

-- name: prune_facts
DELETE FROM {outbox} WHERE {event_id} IN (SELECT {id_in_list} FROM unnest(CAST(:ids AS text[])) AS j(id));
