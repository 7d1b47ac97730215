-- One row per projection. While a rebuild runs, its token and lease stand here; whoever changes the projection reads
-- the row first, and keeps it as it is until the commit.
CREATE TABLE {projections} (
  name       VARCHAR(64) PRIMARY KEY,
  generation BIGINT NOT NULL DEFAULT 0,
  state      VARCHAR(64) NOT NULL DEFAULT 'live',
  progress   BIGINT NOT NULL DEFAULT 0,
  total      BIGINT NOT NULL DEFAULT 0,
  started_at DATETIME(6),
  token      BINARY(16),
  expires_at DATETIME(6)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- next
-- What was applied to a projection while its successor was being built, for the successor.
CREATE TABLE {journal} (
  position   BIGINT AUTO_INCREMENT PRIMARY KEY,
  projection VARCHAR(64) NOT NULL,
  message    LONGBLOB NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;

-- next
CREATE INDEX postroad_projection_journal_order ON {journal} (projection, position);

-- next
-- How far the snapshots of existing rows have come.
CREATE TABLE {backfills} (
  name       VARCHAR(64) PRIMARY KEY,
  place      TEXT,
  snapshots  BIGINT NOT NULL DEFAULT 0,
  started_at DATETIME(6) NOT NULL,
  ended_at   DATETIME(6)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
