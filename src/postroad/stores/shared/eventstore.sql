-- name: events_stream
SELECT seq, event_id, event_type, aggregate_type, aggregate_id, aggregate_version, topic, schema_version, payload,
       content_type, tenant_id, correlation_id, causation_id, attributes, occurred_at, position
  FROM {domain_events}
 WHERE aggregate_type = :aggregate_type AND aggregate_id = :aggregate_id AND aggregate_version > :after
 ORDER BY aggregate_version;

-- name: events_replay
-- Aggregate by aggregate in order. Said so that each page begins where the last one ended.
SELECT event_id, event_type, aggregate_type, aggregate_id, aggregate_version, topic, schema_version, payload, content_type,
       tenant_id, correlation_id, causation_id, attributes, occurred_at
  FROM {domain_events}
 WHERE aggregate_type = :aggregate_type
   AND aggregate_id >= :after_id AND (aggregate_id > :after_id OR aggregate_version > :after_version)
 ORDER BY aggregate_id, aggregate_version LIMIT :limit;

-- name: events_replay_size
SELECT COUNT(*) AS events FROM {domain_events} WHERE aggregate_type = :aggregate_type;

-- name: events_version
SELECT COALESCE(MAX(aggregate_version), 0) AS version FROM {domain_events}
 WHERE aggregate_type = :aggregate_type AND aggregate_id = :aggregate_id;

-- name: events_find
SELECT seq, event_id, event_type, aggregate_type, aggregate_id, aggregate_version, topic, schema_version, payload,
       content_type, tenant_id, correlation_id, causation_id, attributes, occurred_at, position
  FROM {domain_events} WHERE event_id = :event_id;

-- name: events_correlated
SELECT seq, event_id, event_type, aggregate_type, aggregate_id, aggregate_version, topic, schema_version, payload,
       content_type, tenant_id, correlation_id, causation_id, attributes, occurred_at, position
  FROM {domain_events} WHERE correlation_id = :correlation_id ORDER BY seq LIMIT :limit;

-- name: events_caused
SELECT seq, event_id, event_type, aggregate_type, aggregate_id, aggregate_version, topic, schema_version, payload,
       content_type, tenant_id, correlation_id, causation_id, attributes, occurred_at, position
  FROM {domain_events} WHERE causation_id = :causation_id ORDER BY seq;

-- name: events_all
SELECT seq, event_id, event_type, aggregate_type, aggregate_id, aggregate_version, topic, schema_version, payload,
       content_type, tenant_id, correlation_id, causation_id, attributes, occurred_at, position
  FROM {domain_events} WHERE position > :after ORDER BY position LIMIT :limit;

-- name: events_unnumbered
-- What is committed and has no position yet, and the last position that was given. A plain read: it waits for nobody.
SELECT seq, (SELECT COALESCE(MAX(position), 0) FROM {domain_events}) AS last
  FROM {domain_events} WHERE position IS NULL ORDER BY seq LIMIT :limit;
