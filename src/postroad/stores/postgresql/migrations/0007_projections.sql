-- One row per projection. While a rebuild runs, its token and lease stand here; whoever changes the projection reads
-- the row first, and keeps it as it is until the commit.
CREATE TABLE {projections} (
  name       varchar(64) PRIMARY KEY,
  generation bigint NOT NULL DEFAULT 0,
  state      varchar(64) NOT NULL DEFAULT 'live',
  progress   bigint NOT NULL DEFAULT 0,
  total      bigint NOT NULL DEFAULT 0,
  started_at timestamptz,
  token      uuid,
  expires_at timestamptz
);

-- next
-- What was applied to a projection while its successor was being built, for the successor.
CREATE TABLE {journal} (
  position   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  projection varchar(64) NOT NULL,
  message    bytea NOT NULL
);

-- next
CREATE INDEX postroad_projection_journal_order ON {journal} (projection, position);

-- next
-- How far the snapshots of existing rows have come.
CREATE TABLE {backfills} (
  name       varchar(64) PRIMARY KEY,
  place      text,
  snapshots  bigint NOT NULL DEFAULT 0,
  started_at timestamptz NOT NULL,
  ended_at   timestamptz
);
