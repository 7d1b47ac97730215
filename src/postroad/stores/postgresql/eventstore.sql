-- name: event_append
-- A version that is taken, or an event that is there already, is left out: the count tells.
INSERT INTO {domain_events} (event_id, event_type, aggregate_type, aggregate_id, aggregate_version, topic, schema_version,
                             payload, content_type, tenant_id, correlation_id, causation_id, attributes, occurred_at)
VALUES (:event_id, :event_type, :aggregate_type, :aggregate_id, :aggregate_version, :topic, :schema_version,
        :payload, :content_type, :tenant_id, :correlation_id, :causation_id, :attributes, :occurred_at)
ON CONFLICT DO NOTHING;

-- name: events_number
-- Whoever numbered some of them meanwhile has taken the position that the first of the others wants: a duplicate key.
UPDATE {domain_events} e SET position = CAST(:last AS bigint) + n.place
  FROM unnest(CAST(:seqs AS bigint[])) WITH ORDINALITY AS n(seq, place)
 WHERE e.seq = n.seq AND e.position IS NULL;
