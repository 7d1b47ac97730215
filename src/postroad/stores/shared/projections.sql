-- name: projections_all
SELECT name, generation, state, progress, total, started_at, expires_at FROM {projections} ORDER BY name;

-- name: projection_end
UPDATE {projections} SET state = 'live', token = NULL, expires_at = NULL WHERE name = :name AND token = :token;

-- name: journal_add
INSERT INTO {journal} (projection, message) VALUES (:name, :message);

-- name: journal_page
SELECT position, message FROM {journal} WHERE projection = :name ORDER BY position LIMIT :limit;

-- name: journal_clear
DELETE FROM {journal} WHERE projection = :name;

-- name: backfill_move
UPDATE {backfills} SET place = :place, snapshots = :snapshots WHERE name = :name;

-- name: outbox_replay
-- Everything the table still holds, key by key in order. Said so that each page begins where the last one ended: with
-- the alternative alone, every page would be looked for from the first row on.
SELECT {o}.{event_id} AS event_id, {o}.{topic} AS topic, {o}.{event_type} AS event_type,
       {o}.{aggregate_type} AS aggregate_type, {o}.{aggregate_id} AS aggregate_id, {o}.{version} AS version,
       {o}.{schema_version} AS schema_version, {payload_out} AS payload, {o}.{content_type} AS content_type,
       {o}.{tenant_id} AS tenant_id, {o}.{correlation_id} AS correlation_id, {o}.{causation_id} AS causation_id,
       {o}.{attributes} AS attributes, {o}.{occurred_at} AS occurred_at, {o}.{deliver_at} AS deliver_at
  FROM {delivery} d {join_facts}
 WHERE {o}.{aggregate_type} = :aggregate_type AND d.{state} <> 'SKIPPED'
   AND {o}.{aggregate_id} >= :after_id AND ({o}.{aggregate_id} > :after_id OR {o}.{version} > :after_version)
 ORDER BY {o}.{aggregate_id}, {o}.{version}
 LIMIT :limit;

-- name: outbox_replay_size
SELECT COUNT(*) AS events FROM {delivery} d {join_facts} WHERE {o}.{aggregate_type} = :aggregate_type;
