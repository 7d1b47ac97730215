-- The relay looks only at what is not sent yet: shard by shard, key by key, each key in order.
CREATE INDEX {unsent_index} ON {delivery} ({shard}, {ordering_key}, {delivery_version}) WHERE {state} NOT IN ('SENT', 'SKIPPED');

-- next
CREATE INDEX {sent_index} ON {delivery} ({published_at}) WHERE {state} = 'SENT';

-- next
INSERT INTO {shards} (outbox, shard)
WITH RECURSIVE numbers(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < 255)
SELECT {outbox_literal}, n FROM numbers;

-- next
-- Writing to this view writes an event and gives it its version. SQLite has one writer at a time, so no lower
-- version can become visible after a higher one. An event id that is already there is left as it is.
CREATE VIEW {add} AS
SELECT '' AS event_id, '' AS topic, '' AS event_type, '' AS aggregate_type, '' AS aggregate_id, '' AS ordering_key,
       0 AS shard, 0 AS version, 0 AS schema_version, x'' AS payload, '' AS content_type, '' AS tenant_id,
       '' AS correlation_id, '' AS causation_id, '' AS attributes, '' AS occurred_at, '' AS deliver_at;

-- next
CREATE TRIGGER {add_trigger} INSTEAD OF INSERT ON {add}
WHEN NOT EXISTS (SELECT 1 FROM {outbox} WHERE {event_id} = NEW.event_id)
BEGIN
  SELECT RAISE(ABORT, 'postroad: version conflict') FROM {versions}
   WHERE aggregate_type = NEW.aggregate_type AND aggregate_id = NEW.aggregate_id AND NEW.version <= version;
  INSERT INTO {versions} (aggregate_type, aggregate_id, version)
  VALUES (NEW.aggregate_type, NEW.aggregate_id, COALESCE(NEW.version, 1))
  ON CONFLICT (aggregate_type, aggregate_id) DO UPDATE SET version = COALESCE(NEW.version, {versions}.version + 1);
  INSERT INTO {outbox} ({event_id}, {topic}, {event_type}, {aggregate_type}, {aggregate_id}, {version},
    {schema_version}, {payload}, {content_type}, {tenant_id}, {correlation_id}, {causation_id}, {attributes},
    {occurred_at}, {deliver_at}{delivery_columns})
  VALUES (NEW.event_id, NEW.topic, NEW.event_type, NEW.aggregate_type, NEW.aggregate_id, {given},
    NEW.schema_version, {payload_in}, NEW.content_type, NEW.tenant_id, NEW.correlation_id, NEW.causation_id,
    NEW.attributes, NEW.occurred_at, NEW.deliver_at{delivery_values});
  {insert_delivery}
END;
