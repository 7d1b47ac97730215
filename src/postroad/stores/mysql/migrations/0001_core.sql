CREATE TABLE {versions} (
  aggregate_type VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  aggregate_id   VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  version        BIGINT NOT NULL,
  PRIMARY KEY (aggregate_type, aggregate_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- next
CREATE TABLE {shards} (
  outbox     VARCHAR(128) NOT NULL,
  shard      SMALLINT NOT NULL,
  owner      VARCHAR(255),
  token      BINARY(16),
  epoch      BIGINT NOT NULL DEFAULT 0,
  expires_at DATETIME(6),
  PRIMARY KEY (outbox, shard)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- next
CREATE TABLE {workers} (
  id         BINARY(16) PRIMARY KEY,
  kind       VARCHAR(255) NOT NULL,
  name       VARCHAR(255) NOT NULL,
  detail     VARCHAR(255) NOT NULL DEFAULT '',
  started_at DATETIME(6) NOT NULL,
  seen_at    DATETIME(6) NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- next
CREATE TABLE {inbox} (
  consumer_group VARCHAR(64) NOT NULL,
  event_id       BINARY(16) NOT NULL,
  tenant_id      VARCHAR(255) NOT NULL DEFAULT '',
  event_type     VARCHAR(128) NOT NULL,
  topic          VARCHAR(255) NOT NULL DEFAULT '',
  ordering_key   VARCHAR(520) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
  version        BIGINT NOT NULL DEFAULT 0,
  status         SMALLINT NOT NULL,
  locked_by      VARCHAR(255),
  locked_until   DATETIME(6),
  epoch          BIGINT NOT NULL DEFAULT 0,
  next_retry_at  DATETIME(6),
  retry_count    INT NOT NULL DEFAULT 0,
  error_msg      VARCHAR(256),
  received_at    DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
  processed_at   DATETIME(6),
  waiting_key    VARCHAR(520) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
  message        LONGBLOB,
  PRIMARY KEY (consumer_group, event_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- next
-- Who must wait: a key with a failed event that will be tried again. Few rows, asked for each event.
CREATE INDEX postroad_inbox_waiting ON {inbox} (consumer_group, waiting_key);

-- next
CREATE INDEX postroad_inbox_unsettled ON {inbox} (status, consumer_group, next_retry_at);

-- next
CREATE INDEX postroad_inbox_processed ON {inbox} (status, processed_at);

-- next
-- Which types a group has ever handled: tells a deleted handler from a type that was never meant for it.
CREATE TABLE {handlers} (
  consumer_group VARCHAR(64) NOT NULL,
  event_type     VARCHAR(128) NOT NULL,
  first_seen     DATETIME(6) NOT NULL,
  last_seen      DATETIME(6) NOT NULL,
  PRIMARY KEY (consumer_group, event_type)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- next
-- What people did by hand: retry, skip, discard.
CREATE TABLE {audit} (
  id      BIGINT AUTO_INCREMENT PRIMARY KEY,
  at      DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
  actor   VARCHAR(255) NOT NULL,
  action  VARCHAR(255) NOT NULL,
  subject VARCHAR(255) NOT NULL,
  detail  TEXT
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
