-- name: event_append
-- A version that is taken, or an event that is there already, is left out: the count tells.
INSERT INTO {domain_events} (event_id, event_type, aggregate_type, aggregate_id, aggregate_version, topic, schema_version,
                             payload, content_type, tenant_id, correlation_id, causation_id, attributes, occurred_at)
VALUES (:event_id, :event_type, :aggregate_type, :aggregate_id, :aggregate_version, :topic, :schema_version,
        :payload, :content_type, :tenant_id, :correlation_id, :causation_id, :attributes, :occurred_at)
ON CONFLICT DO NOTHING;

-- name: events_number
-- Whoever numbered some of them meanwhile has taken the position that the first of the others wants: a duplicate key.
UPDATE {domain_events} SET position = :last + 1 + (SELECT n.key FROM json_each(:seqs) n WHERE n.value = seq)
 WHERE position IS NULL AND seq IN (SELECT value FROM json_each(:seqs));
