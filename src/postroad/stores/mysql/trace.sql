-- name: commands_known
SELECT command_id, correlation_id FROM {commands} WHERE command_id IN (SELECT UNHEX(j.id) FROM JSON_TABLE(:ids, '$[*]' COLUMNS (id CHAR(32) PATH '$')) j);

-- name: events_known
SELECT event_id, correlation_id FROM {domain_events} WHERE event_id IN (SELECT UNHEX(j.id) FROM JSON_TABLE(:ids, '$[*]' COLUMNS (id CHAR(32) PATH '$')) j);

-- name: outbox_known
SELECT {event_id} AS event_id, {correlation_id} AS correlation_id FROM {outbox}
 WHERE {event_id} IN (SELECT {id_in_list} FROM JSON_TABLE(:ids, '$[*]' COLUMNS (id VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$')) j);

-- name: inbox_of_events
SELECT r.consumer_group, r.event_id, r.event_type, r.ordering_key, r.version, r.status, r.next_retry_at, r.error_msg, r.received_at,
       r.processed_at
  FROM JSON_TABLE(:ids, '$[*]' COLUMNS (id CHAR(32) PATH '$')) i
  STRAIGHT_JOIN {inbox} r ON r.consumer_group = :group AND r.event_id = UNHEX(i.id);
