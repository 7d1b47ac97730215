-- What was asked for. The number is the order in which commands of one aggregate run.
CREATE TABLE {commands} (
  seq            BIGINT AUTO_INCREMENT PRIMARY KEY,
  command_id     BINARY(16) NOT NULL UNIQUE,
  command_type   VARCHAR(128) NOT NULL,
  aggregate_type VARCHAR(128) NOT NULL,
  aggregate_id   VARCHAR(255) NOT NULL,
  payload        LONGBLOB NOT NULL,
  tenant_id      VARCHAR(255) NOT NULL DEFAULT '',
  user_id        VARCHAR(1024),
  correlation_id VARCHAR(1024) NOT NULL,
  causation_id   VARCHAR(1024),
  status         VARCHAR(10) NOT NULL,
  retry_count    INT NOT NULL DEFAULT 0,
  next_retry_at  DATETIME(6),
  error_message  VARCHAR(256),
  locked_by      VARCHAR(255),
  locked_until   DATETIME(6),
  epoch          BIGINT NOT NULL DEFAULT 0,
  created_at     DATETIME(6) NOT NULL,
  started_at     DATETIME(6),
  finished_at    DATETIME(6)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- next
-- What a worker looks at: few rows, however many are completed.
CREATE INDEX postroad_command_box_open ON {commands} (aggregate_type, aggregate_id, status, seq);

-- next
CREATE INDEX postroad_command_box_status ON {commands} (status, seq);

-- next
CREATE INDEX postroad_command_box_correlation ON {commands} (correlation_id(255));

-- next
-- What has happened, for good. `seq` is drawn before the commit; `position` is given after it, and is what readers of
-- the whole follow.
CREATE TABLE {domain_events} (
  seq               BIGINT AUTO_INCREMENT PRIMARY KEY,
  event_id          BINARY(16) NOT NULL UNIQUE,
  event_type        VARCHAR(128) NOT NULL,
  aggregate_type    VARCHAR(128) NOT NULL,
  aggregate_id      VARCHAR(255) NOT NULL,
  aggregate_version BIGINT NOT NULL,
  topic             VARCHAR(255) NOT NULL,
  schema_version    INT NOT NULL,
  payload           LONGBLOB NOT NULL,
  content_type      VARCHAR(255) NOT NULL,
  tenant_id         VARCHAR(255) NOT NULL DEFAULT '',
  correlation_id    VARCHAR(1024),
  causation_id      VARCHAR(1024),
  attributes        LONGTEXT,
  occurred_at       DATETIME(6) NOT NULL,
  position          BIGINT,
  UNIQUE (aggregate_type, aggregate_id, aggregate_version)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- next
-- Two who number at once want the same next position: one of them has to look again. What has none stands first in it.
CREATE UNIQUE INDEX postroad_domain_events_position ON {domain_events} (position);

-- next
CREATE INDEX postroad_domain_events_correlation ON {domain_events} (correlation_id(255));

-- next
CREATE INDEX postroad_domain_events_causation ON {domain_events} (causation_id(255));

-- next
CREATE INDEX postroad_domain_events_occurred ON {domain_events} (occurred_at);
