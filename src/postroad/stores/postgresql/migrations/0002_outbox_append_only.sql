-- The facts are only ever inserted, as change data capture wants them; their delivery is kept apart.
CREATE TABLE {outbox} (
  event_id        uuid PRIMARY KEY,
  topic           text NOT NULL,
  event_type      varchar(128) NOT NULL,
  aggregate_type  text COLLATE "C" NOT NULL,
  aggregate_id    text COLLATE "C" NOT NULL,
  version         bigint NOT NULL,
  schema_version  int NOT NULL DEFAULT 1,
  payload         bytea NOT NULL,
  content_type    text NOT NULL DEFAULT 'application/json',
  tenant_id       text NOT NULL DEFAULT '',
  correlation_id  text,
  causation_id    text,
  attributes      text,
  occurred_at     timestamptz NOT NULL,
  created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
  deliver_at      timestamptz,
  UNIQUE (aggregate_type, aggregate_id, version)
);

-- next
CREATE TABLE {delivery} (
  event_id        uuid PRIMARY KEY,
  version         bigint NOT NULL,
  ordering_key    text COLLATE "C",
  shard           smallint,
  state           varchar(8) NOT NULL DEFAULT 'NEW',
  attempts        int NOT NULL DEFAULT 0,
  next_attempt_at timestamptz,
  last_error      text,
  published_at    timestamptz
);
