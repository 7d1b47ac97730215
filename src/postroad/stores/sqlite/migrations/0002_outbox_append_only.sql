-- The facts are only ever inserted, as change data capture wants them; their delivery is kept apart.
CREATE TABLE {outbox} (
  event_id        TEXT PRIMARY KEY,
  topic           TEXT NOT NULL,
  event_type      TEXT NOT NULL,
  aggregate_type  TEXT NOT NULL,
  aggregate_id    TEXT NOT NULL,
  version         INTEGER NOT NULL,
  schema_version  INTEGER NOT NULL DEFAULT 1,
  payload         BLOB NOT NULL,
  content_type    TEXT NOT NULL DEFAULT 'application/json',
  tenant_id       TEXT NOT NULL DEFAULT '',
  correlation_id  TEXT,
  causation_id    TEXT,
  attributes      TEXT,
  occurred_at     TEXT NOT NULL,
  created_at      TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
  deliver_at      TEXT,
  UNIQUE (aggregate_type, aggregate_id, version)
);

-- next
CREATE TABLE {delivery} (
  event_id        TEXT PRIMARY KEY,
  version         INTEGER NOT NULL,
  ordering_key    TEXT,
  shard           INTEGER,
  state           TEXT NOT NULL DEFAULT 'NEW',
  attempts        INTEGER NOT NULL DEFAULT 0,
  next_attempt_at TEXT,
  last_error      TEXT,
  published_at    TEXT
);
