-- What was asked for. The number is the order in which commands of one aggregate run.
CREATE TABLE {commands} (
  seq            INTEGER PRIMARY KEY AUTOINCREMENT,
  command_id     TEXT NOT NULL UNIQUE,
  command_type   TEXT NOT NULL,
  aggregate_type TEXT NOT NULL,
  aggregate_id   TEXT NOT NULL,
  payload        BLOB NOT NULL,
  tenant_id      TEXT NOT NULL DEFAULT '',
  user_id        TEXT,
  correlation_id TEXT NOT NULL,
  causation_id   TEXT,
  status         TEXT NOT NULL,
  retry_count    INTEGER NOT NULL DEFAULT 0,
  next_retry_at  TEXT,
  error_message  TEXT,
  locked_by      TEXT,
  locked_until   TEXT,
  epoch          INTEGER NOT NULL DEFAULT 0,
  created_at     TEXT NOT NULL,
  started_at     TEXT,
  finished_at    TEXT
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
  seq               INTEGER PRIMARY KEY AUTOINCREMENT,
  event_id          TEXT NOT NULL UNIQUE,
  event_type        TEXT NOT NULL,
  aggregate_type    TEXT NOT NULL,
  aggregate_id      TEXT NOT NULL,
  aggregate_version INTEGER NOT NULL,
  topic             TEXT NOT NULL,
  schema_version    INTEGER NOT NULL,
  payload           BLOB NOT NULL,
  content_type      TEXT NOT NULL,
  tenant_id         TEXT NOT NULL DEFAULT '',
  correlation_id    TEXT,
  causation_id      TEXT,
  attributes        TEXT,
  occurred_at       TEXT NOT NULL,
  position          INTEGER,
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
