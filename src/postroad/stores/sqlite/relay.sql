-- name: lease_renew
UPDATE {shards} SET expires_at = postroad_in(:ttl) WHERE outbox = :outbox_name AND token = :token;

-- name: lease_free
SELECT shard FROM {shards}
 WHERE outbox = :outbox_name AND (token IS NULL OR expires_at <= postroad_now())
 ORDER BY shard LIMIT :most;

-- name: lease_take
UPDATE {shards} SET owner = :owner, token = :token, epoch = epoch + 1, expires_at = postroad_in(:ttl)
 WHERE outbox = :outbox_name AND shard IN (SELECT value FROM json_each(:shards));

-- name: lease_release
UPDATE {shards} SET owner = NULL, token = NULL, expires_at = NULL
 WHERE outbox = :outbox_name AND token = :token AND shard IN (SELECT value FROM json_each(:shards));

-- name: relays_alive
SELECT count(*) AS alive FROM {workers} WHERE kind = 'relay' AND detail = :outbox_name AND seen_at > postroad_in(-:ttl);

-- name: read_due
-- Shards with something unsent, then their key heads, both by skip-scan: one index probe for each, however long the
-- backlog. A head that is parked or waits for its next attempt holds back its key and is still listed, so that the
-- reader's cursor passes it. A large payload is left out: the reader fetches as many as it can hold.
-- Statistics of an outbox that was empty make SQLite prefer to read all that waits: so the index is named, and a head
-- is looked up by itself, since for a join SQLite may build a filter over the whole table.
WITH RECURSIVE waiting(shard) AS (
  SELECT min(d.{shard}) FROM {delivery} d INDEXED BY {unsent_index} WHERE d.{state} NOT IN ('SENT', 'SKIPPED')
  UNION ALL
  SELECT (SELECT min(d.{shard}) FROM {delivery} d INDEXED BY {unsent_index}
           WHERE d.{state} NOT IN ('SENT', 'SKIPPED') AND d.{shard} > w.shard)
    FROM waiting w WHERE w.shard IS NOT NULL
), keys(shard, depth, ordering_key) AS (
  SELECT s.value, 1, (
           SELECT d.{ordering_key} FROM {delivery} d INDEXED BY {unsent_index}
            WHERE d.{shard} = s.value AND d.{state} NOT IN ('SENT', 'SKIPPED') AND d.{ordering_key} > COALESCE(a.value, '')
            ORDER BY d.{ordering_key} LIMIT 1)
    FROM json_each(:shards) s LEFT JOIN json_each(:after) a ON a.key = s.key
   WHERE s.value IN (SELECT shard FROM waiting)
  UNION ALL
  SELECT k.shard, k.depth + 1, (
           SELECT d.{ordering_key} FROM {delivery} d INDEXED BY {unsent_index}
            WHERE d.{shard} = k.shard AND d.{state} NOT IN ('SENT', 'SKIPPED') AND d.{ordering_key} > k.ordering_key
            ORDER BY d.{ordering_key} LIMIT 1)
    FROM keys k WHERE k.ordering_key IS NOT NULL AND k.depth < :depth
), firsts AS MATERIALIZED (
  SELECT k.shard, k.ordering_key, (
           SELECT d.{delivery_version} FROM {delivery} d INDEXED BY {unsent_index}
            WHERE d.{shard} = k.shard AND d.{ordering_key} = k.ordering_key AND d.{state} NOT IN ('SENT', 'SKIPPED')
            ORDER BY d.{delivery_version} LIMIT 1) AS version
    FROM keys k WHERE k.ordering_key IS NOT NULL
), heads AS MATERIALIZED (
  SELECT f.shard, f.ordering_key, f.version, (
           SELECT d.{state} <> 'FAILED' AND (d.{next_attempt_at} IS NULL OR d.{next_attempt_at} <= postroad_now())
             FROM {delivery} d INDEXED BY {unsent_index}
            WHERE d.{shard} = f.shard AND d.{ordering_key} = f.ordering_key AND d.{delivery_version} = f.version
              AND d.{state} NOT IN ('SENT', 'SKIPPED')) AS due
    FROM firsts f
)
SELECT h.shard, h.ordering_key, {o}.{event_id} AS event_id, d.{state} AS state, d.{attempts} AS attempts,
       {o}.{version} AS version, {o}.{topic} AS topic, {o}.{event_type} AS event_type,
       {o}.{aggregate_type} AS aggregate_type, {o}.{aggregate_id} AS aggregate_id,
       {o}.{schema_version} AS schema_version, length({payload_out}) AS size,
       CASE WHEN length({payload_out}) <= :inline THEN {payload_out} END AS payload, {o}.{content_type} AS content_type,
       {o}.{tenant_id} AS tenant_id, {o}.{correlation_id} AS correlation_id, {o}.{causation_id} AS causation_id,
       {o}.{attributes} AS attributes, {o}.{occurred_at} AS occurred_at, {o}.{deliver_at} AS deliver_at
  FROM heads h
  LEFT JOIN {delivery} d INDEXED BY {unsent_index}
    ON h.due AND d.{shard} = h.shard AND d.{ordering_key} = h.ordering_key AND d.{state} NOT IN ('SENT', 'SKIPPED')
   AND d.{delivery_version} >= h.version
   AND d.{delivery_version} < h.version + MAX(1, :most / MAX(1, (SELECT count(*) FROM heads x WHERE x.due)))
  {join_facts}
 ORDER BY h.shard, h.ordering_key, d.{delivery_version};

-- name: read_payloads
SELECT {event_id} AS event_id, {payload_out} AS payload FROM {outbox}
 WHERE {event_id} IN (SELECT value FROM json_each(:ids));

-- name: mark_sent
-- Settle by lease, not by id alone: a slow relay must not undo what its successor did.
-- A relay that was sending while a person skipped the event has the last word: it was sent.
UPDATE {delivery}
   SET {state} = 'SENT', {published_at} = postroad_now(), {last_error} = NULL
 WHERE {state} <> 'SENT' AND {delivery_event_id} IN (
   SELECT i.value
     FROM json_each(:ids) i
     -- Looked up by position: joining three json_each would compare every row with every other.
     CROSS JOIN {shards} l
       ON l.outbox = :outbox_name AND l.shard = json_extract(:shards, '$[' || i.key || ']')
      AND l.epoch = json_extract(:epochs, '$[' || i.key || ']') AND l.token = :token);

-- name: mark_failed
UPDATE {delivery} AS d
   SET {state} = :state, {attempts} = {attempts} + 1, {last_error} = :error, {next_attempt_at} = postroad_in(:wait)
  FROM {shards} l
 WHERE d.{delivery_event_id} = :event_id AND d.{state} NOT IN ('SENT', 'SKIPPED')
   AND l.outbox = :outbox_name AND l.shard = d.{shard} AND l.token = :token AND l.epoch = :epoch;

-- name: adoption_turn
-- Of the relays, the holder of shard 0 sorts in what other programs wrote; the row lock makes them take turns.
SELECT shard FROM {shards} WHERE outbox = :outbox_name AND shard = 0 AND token = :token;

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
INSERT INTO {versions} (aggregate_type, aggregate_id, version) VALUES (:aggregate_type, :aggregate_id, COALESCE(:version, 1))
ON CONFLICT (aggregate_type, aggregate_id)
DO UPDATE SET version = COALESCE(MAX({versions}.version, :version), {versions}.version + 1);

-- name: prunable
-- Never what is unsent, or parked for a person.
SELECT d.{delivery_event_id} AS event_id FROM {delivery} d
 WHERE d.{state} = 'SENT' AND d.{published_at} < postroad_in(-:older_than)
 ORDER BY d.{published_at} LIMIT :most;

-- name: prunable_skipped
SELECT d.{delivery_event_id} AS event_id FROM {delivery} d
 WHERE d.{state} = 'SKIPPED' AND d.{published_at} < postroad_in(-:older_than)
 ORDER BY d.{published_at} LIMIT :most;

-- name: prune_sent
DELETE FROM {delivery} WHERE {delivery_event_id} IN (SELECT value FROM json_each(:ids));

-- name: prune_facts
DELETE FROM {outbox} WHERE {event_id} IN (SELECT value FROM json_each(:ids));
