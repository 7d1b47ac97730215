-- name: commands_known
SELECT command_id, correlation_id FROM {commands} WHERE command_id = ANY(CAST(:ids AS uuid[]));

-- name: events_known
SELECT event_id, correlation_id FROM {domain_events} WHERE event_id = ANY(CAST(:ids AS uuid[]));

-- name: outbox_known
SELECT {event_id} AS event_id, {correlation_id} AS correlation_id FROM {outbox}
 WHERE {event_id} IN (SELECT {id_in_list} FROM unnest(CAST(:ids AS text[])) AS j(id));

-- name: inbox_of_events
SELECT consumer_group, event_id, event_type, ordering_key, version, status, next_retry_at, error_msg, received_at, processed_at
  FROM {inbox} WHERE consumer_group = :group AND event_id = ANY(CAST(:ids AS uuid[]));
