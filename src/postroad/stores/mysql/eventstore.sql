-- name: event_append
-- A version that is taken, or an event that is there already, is left out: the count tells.
INSERT INTO {domain_events} (event_id, event_type, aggregate_type, aggregate_id, aggregate_version, topic, schema_version,
                             payload, content_type, tenant_id, correlation_id, causation_id, attributes, occurred_at)
VALUES (:event_id, :event_type, :aggregate_type, :aggregate_id, :aggregate_version, :topic, :schema_version,
        :payload, :content_type, :tenant_id, :correlation_id, :causation_id, :attributes, :occurred_at);

-- name: events_number
-- Whoever numbered some of them meanwhile has taken the position that the first of the others wants: a duplicate key.
-- In this order and by the primary key: in any other, rows that somebody is just inserting would be looked at, and
-- waited for.
UPDATE JSON_TABLE(:seqs, '$[*]' COLUMNS (place FOR ORDINALITY, seq BIGINT PATH '$')) n
  STRAIGHT_JOIN {domain_events} e FORCE INDEX (PRIMARY) ON e.seq = n.seq
   SET e.position = :last + n.place
 WHERE e.position IS NULL;
