CREATE TABLE {versions} (
  aggregate_type TEXT NOT NULL,
  aggregate_id   TEXT NOT NULL,
  version        INTEGER NOT NULL,
  PRIMARY KEY (aggregate_type, aggregate_id)
);

-- next
CREATE TABLE {shards} (
  outbox     TEXT NOT NULL,
  shard      INTEGER NOT NULL,
  owner      TEXT,
  token      TEXT,
  epoch      INTEGER NOT NULL DEFAULT 0,
  expires_at TEXT,
  PRIMARY KEY (outbox, shard)
);

-- next
CREATE TABLE {workers} (
  id         TEXT PRIMARY KEY,
  kind       TEXT NOT NULL,
  name       TEXT NOT NULL,
  detail     TEXT NOT NULL DEFAULT '',
  started_at TEXT NOT NULL,
  seen_at    TEXT NOT NULL
);

-- next
CREATE TABLE {inbox} (
  consumer_group TEXT NOT NULL,
  event_id       TEXT NOT NULL,
  tenant_id      TEXT NOT NULL DEFAULT '',
  event_type     TEXT NOT NULL,
  topic          TEXT NOT NULL DEFAULT '',
  ordering_key   TEXT,
  version        INTEGER NOT NULL DEFAULT 0,
  status         INTEGER NOT NULL,
  locked_by      TEXT,
  locked_until   TEXT,
  epoch          INTEGER NOT NULL DEFAULT 0,
  next_retry_at  TEXT,
  retry_count    INTEGER NOT NULL DEFAULT 0,
  error_msg      TEXT,
  received_at    TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
  processed_at   TEXT,
  waiting_key    TEXT,
  message        BLOB,
  PRIMARY KEY (consumer_group, event_id)
);

-- next
-- Who must wait: a key with a failed event that will be tried again. Few rows, asked for each event.
CREATE INDEX postroad_inbox_waiting ON {inbox} (consumer_group, waiting_key) WHERE waiting_key IS NOT NULL;

-- next
CREATE INDEX postroad_inbox_unsettled ON {inbox} (consumer_group, next_retry_at) WHERE status <> 1;

-- next
CREATE INDEX postroad_inbox_processed ON {inbox} (processed_at) WHERE status = 1;

-- next
-- Which types a group has ever handled: tells a deleted handler from a type that was never meant for it.
CREATE TABLE {handlers} (
  consumer_group TEXT NOT NULL,
  event_type     TEXT NOT NULL,
  first_seen     TEXT NOT NULL,
  last_seen      TEXT NOT NULL,
  PRIMARY KEY (consumer_group, event_type)
);

-- next
-- What people did by hand: retry, skip, discard.
CREATE TABLE {audit} (
  id      INTEGER PRIMARY KEY AUTOINCREMENT,
  at      TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
  actor   TEXT NOT NULL,
  action  TEXT NOT NULL,
  subject TEXT NOT NULL,
  detail  TEXT
);
