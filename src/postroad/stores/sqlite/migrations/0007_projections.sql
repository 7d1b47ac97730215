-- One row per projection. While a rebuild runs, its token and lease stand here; whoever changes the projection reads
-- the row first, and keeps it as it is until the commit.
CREATE TABLE {projections} (
  name       TEXT PRIMARY KEY,
  generation INTEGER NOT NULL DEFAULT 0,
  state      TEXT NOT NULL DEFAULT 'live',
  progress   INTEGER NOT NULL DEFAULT 0,
  total      INTEGER NOT NULL DEFAULT 0,
  started_at TEXT,
  token      TEXT,
  expires_at TEXT
);

-- next
-- What was applied to a projection while its successor was being built, for the successor.
CREATE TABLE {journal} (
  position   INTEGER PRIMARY KEY AUTOINCREMENT,
  projection TEXT NOT NULL,
  message    BLOB NOT NULL
);

-- next
CREATE INDEX postroad_projection_journal_order ON {journal} (projection, position);

-- next
-- How far the snapshots of existing rows have come.
CREATE TABLE {backfills} (
  name       TEXT PRIMARY KEY,
  place      TEXT,
  snapshots  INTEGER NOT NULL DEFAULT 0,
  started_at TEXT NOT NULL,
  ended_at   TEXT
);
