-- The facts are only ever inserted, as change data capture wants them; their delivery is kept apart.
CREATE TABLE {outbox} (
  event_id        BINARY(16) PRIMARY KEY,
  topic           VARCHAR(255) NOT NULL,
  event_type      VARCHAR(128) NOT NULL,
  aggregate_type  VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  aggregate_id    VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  version         BIGINT NOT NULL,
  schema_version  INT NOT NULL DEFAULT 1,
  payload         LONGBLOB NOT NULL,
  content_type    VARCHAR(255) NOT NULL DEFAULT 'application/json',
  tenant_id       VARCHAR(1024) NOT NULL DEFAULT '',
  correlation_id  VARCHAR(1024),
  causation_id    VARCHAR(1024),
  attributes      MEDIUMTEXT,
  occurred_at     DATETIME(6) NOT NULL,
  created_at      DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
  deliver_at      DATETIME(6),
  UNIQUE (aggregate_type, aggregate_id, version)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- next
CREATE TABLE {delivery} (
  event_id        BINARY(16) PRIMARY KEY,
  version         BIGINT NOT NULL,
  ordering_key    VARCHAR(520) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
  shard           SMALLINT,
  state           VARCHAR(8) NOT NULL DEFAULT 'NEW',
  attempts        INT NOT NULL DEFAULT 0,
  next_attempt_at DATETIME(6),
  last_error      TEXT,
  published_at    DATETIME(6)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
