-- name: add_event
INSERT INTO {add} (event_id, topic, event_type, aggregate_type, aggregate_id, ordering_key, shard, version,
  schema_version, payload, content_type, tenant_id, correlation_id, causation_id, attributes, occurred_at, deliver_at)
VALUES (:event_id, :topic, :event_type, :aggregate_type, :aggregate_id, :ordering_key, :shard, :version,
  :schema_version, :payload, :content_type, :tenant_id, :correlation_id, :causation_id, :attributes,
  :occurred_at, :deliver_at);
