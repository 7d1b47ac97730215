-- What was asked for. The number is the order in which commands of one aggregate run.
CREATE TABLE {commands} (
  seq            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  command_id     uuid NOT NULL UNIQUE,
  command_type   varchar(128) NOT NULL,
  aggregate_type text COLLATE "C" NOT NULL,
  aggregate_id   text COLLATE "C" NOT NULL,
  payload        bytea NOT NULL,
  tenant_id      text NOT NULL DEFAULT '',
  user_id        text,
  correlation_id text NOT NULL,
  causation_id   text,
  status         varchar(10) NOT NULL,
  retry_count    int NOT NULL DEFAULT 0,
  next_retry_at  timestamptz,
  error_message  varchar(256),
  locked_by      text,
  locked_until   timestamptz,
  epoch          bigint NOT NULL DEFAULT 0,
  created_at     timestamptz NOT NULL,
  started_at     timestamptz,
  finished_at    timestamptz
);

-- next
-- What a worker looks at: few rows, however many are completed.
CREATE INDEX postroad_command_box_open ON {commands} (aggregate_type, aggregate_id, seq) WHERE status <> 'COMPLETED';

-- next
CREATE INDEX postroad_command_box_status ON {commands} (status, seq);

-- next
CREATE INDEX postroad_command_box_correlation ON {commands} (correlation_id);

-- next
-- What has happened, for good. `seq` is drawn before the commit; `position` is given after it, and is what readers of
-- the whole follow.
CREATE TABLE {domain_events} (
  seq               bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  event_id          uuid NOT NULL UNIQUE,
  event_type        varchar(128) NOT NULL,
  aggregate_type    text COLLATE "C" NOT NULL,
  aggregate_id      text COLLATE "C" NOT NULL,
  aggregate_version bigint NOT NULL,
  topic             text NOT NULL,
  schema_version    int NOT NULL,
  payload           bytea NOT NULL,
  content_type      text NOT NULL,
  tenant_id         text NOT NULL DEFAULT '',
  correlation_id    text,
  causation_id      text,
  attributes        text,
  occurred_at       timestamptz NOT NULL,
  position          bigint,
  UNIQUE (aggregate_type, aggregate_id, aggregate_version)
);

-- next
-- Two who number at once want the same next position: one of them has to look again.
CREATE UNIQUE INDEX postroad_domain_events_position ON {domain_events} (position);

-- next
CREATE INDEX postroad_domain_events_unnumbered ON {domain_events} (seq) WHERE position IS NULL;

-- next
CREATE INDEX postroad_domain_events_correlation ON {domain_events} (correlation_id);

-- next
CREATE INDEX postroad_domain_events_causation ON {domain_events} (causation_id);

-- next
CREATE INDEX postroad_domain_events_occurred ON {domain_events} (occurred_at);
