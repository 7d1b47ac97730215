-- As before, but quicker: an event without a given version is not looked for.
-- Writes an event and gives it its version. The counter row stays locked until the commit, so no lower version
-- can become visible after a higher one. An event id that is already there is left as it is.
CREATE OR REPLACE FUNCTION {add}(
  a_event_id {id_type}, a_topic text, a_event_type text, a_aggregate_type text, a_aggregate_id text,
  a_ordering_key text, a_shard int, a_version bigint, a_schema_version int, a_payload bytea,
  a_content_type text, a_tenant_id text, a_correlation_id text, a_causation_id text, a_attributes text,
  a_occurred_at timestamptz, a_deliver_at timestamptz
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  given bigint;
BEGIN
  -- Before a given version moves the counter: there would be no telling where it stood.
  IF a_version IS NOT NULL THEN  -- asked alone: together with the subquery it would run as a query every time
    IF EXISTS (SELECT 1 FROM {outbox} WHERE {event_id} = a_event_id) THEN
      RETURN NULL;
    END IF;
  END IF;
  INSERT INTO {versions} AS v (aggregate_type, aggregate_id, version)
  VALUES (a_aggregate_type, a_aggregate_id, COALESCE(a_version, 1))
  ON CONFLICT (aggregate_type, aggregate_id) DO UPDATE SET version = COALESCE(a_version, v.version + 1)
   WHERE COALESCE(a_version, v.version + 1) > v.version
  RETURNING version INTO given;
  IF given IS NOT NULL THEN
    INSERT INTO {outbox} ({event_id}, {topic}, {event_type}, {aggregate_type}, {aggregate_id}, {version},
      {schema_version}, {payload}, {content_type}, {tenant_id}, {correlation_id}, {causation_id}, {attributes},
      {occurred_at}, {deliver_at}{delivery_columns})
    VALUES (a_event_id, a_topic, a_event_type, a_aggregate_type, a_aggregate_id, given,
      a_schema_version, {payload_in}, a_content_type, a_tenant_id, a_correlation_id, a_causation_id, a_attributes,
      a_occurred_at, a_deliver_at{delivery_values})
    ON CONFLICT DO NOTHING;
    IF FOUND THEN
      {insert_delivery}
      RETURN given;
    END IF;
    -- Not written, so the number is free again; the counter is still locked.
    UPDATE {versions} SET version = given - 1
     WHERE aggregate_type = a_aggregate_type AND aggregate_id = a_aggregate_id AND a_version IS NULL;
  END IF;
  IF NOT EXISTS (SELECT 1 FROM {outbox} WHERE {event_id} = a_event_id) THEN
    RAISE EXCEPTION 'postroad: version conflict' USING ERRCODE = 'PRVER', DETAIL = CAST(a_event_id AS text);
  END IF;
  RETURN NULL;
END $$;
