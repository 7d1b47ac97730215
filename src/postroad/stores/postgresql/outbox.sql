-- name: add_event
SELECT {add}(
  CAST(:event_id AS {id_type}), CAST(:topic AS text), CAST(:event_type AS text), CAST(:aggregate_type AS text),
  CAST(:aggregate_id AS text), CAST(:ordering_key AS text), CAST(:shard AS int), CAST(:version AS bigint),
  CAST(:schema_version AS int), CAST(:payload AS bytea), CAST(:content_type AS text), CAST(:tenant_id AS text),
  CAST(:correlation_id AS text), CAST(:causation_id AS text), CAST(:attributes AS text),
  CAST(:occurred_at AS timestamptz), CAST(:deliver_at AS timestamptz));
