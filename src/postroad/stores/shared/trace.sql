-- name: commands_correlated
SELECT seq, command_id, command_type, aggregate_type, aggregate_id, payload, tenant_id, user_id, correlation_id,
       causation_id, status, retry_count, next_retry_at, error_message, locked_by, locked_until, epoch, created_at,
       started_at, finished_at
  FROM {commands} WHERE correlation_id = :correlation_id ORDER BY seq LIMIT :limit;

-- name: commands_since
SELECT seq, command_id, command_type, aggregate_type, aggregate_id, payload, tenant_id, user_id, correlation_id,
       causation_id, status, retry_count, next_retry_at, error_message, locked_by, locked_until, epoch, created_at,
       started_at, finished_at
  FROM {commands} WHERE seq > :after AND created_at >= :since AND causation_id IS NOT NULL ORDER BY seq LIMIT :limit;

-- name: events_since
SELECT seq, event_id, event_type, aggregate_type, aggregate_id, aggregate_version, topic, schema_version, payload,
       content_type, tenant_id, correlation_id, causation_id, attributes, occurred_at, position
  FROM {domain_events} WHERE occurred_at >= :since AND (occurred_at > :since OR seq > :after)
 ORDER BY occurred_at, seq LIMIT :limit;

-- name: outbox_correlated
-- From end to end: an index would be paid for by every event that is written.
SELECT d.{delivery_event_id} AS event_id, {o}.{event_type} AS event_type, {o}.{version} AS version,
       d.{state} AS state, d.{last_error} AS last_error, {o}.{occurred_at} AS occurred_at,
       {o}.{aggregate_type} AS aggregate_type, {o}.{aggregate_id} AS aggregate_id,
       {o}.{correlation_id} AS correlation_id, {o}.{causation_id} AS causation_id
  FROM {delivery} d {join_facts}
 WHERE {o}.{correlation_id} = :correlation_id LIMIT :limit;

-- name: outbox_caused_since
-- By id, so that all pages together walk through the table once.
SELECT d.{delivery_event_id} AS event_id, {o}.{event_type} AS event_type, {o}.{version} AS version,
       d.{state} AS state, d.{last_error} AS last_error, {o}.{occurred_at} AS occurred_at,
       {o}.{aggregate_type} AS aggregate_type, {o}.{aggregate_id} AS aggregate_id,
       {o}.{correlation_id} AS correlation_id, {o}.{causation_id} AS causation_id
  FROM {delivery} d {join_facts}
 WHERE d.{delivery_event_id} > :after AND {o}.{occurred_at} >= :since AND {o}.{causation_id} IS NOT NULL
 ORDER BY d.{delivery_event_id} LIMIT :limit;
