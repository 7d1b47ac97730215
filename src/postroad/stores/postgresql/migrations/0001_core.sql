CREATE TABLE {versions} (
  aggregate_type text COLLATE "C" NOT NULL,
  aggregate_id   text COLLATE "C" NOT NULL,
  version        bigint NOT NULL,
  PRIMARY KEY (aggregate_type, aggregate_id)
) WITH (fillfactor = 80);

-- next
CREATE TABLE {shards} (
  outbox     text NOT NULL,
  shard      smallint NOT NULL,
  owner      text,
  token      uuid,
  epoch      bigint NOT NULL DEFAULT 0,
  expires_at timestamptz,
  PRIMARY KEY (outbox, shard)
) WITH (fillfactor = 50);

-- next
CREATE TABLE {workers} (
  id         uuid PRIMARY KEY,
  kind       text NOT NULL,
  name       text NOT NULL,
  detail     text NOT NULL DEFAULT '',
  started_at timestamptz NOT NULL,
  seen_at    timestamptz NOT NULL
);

-- next
CREATE TABLE {inbox} (
  consumer_group varchar(64) NOT NULL,
  event_id       uuid NOT NULL,
  tenant_id      text NOT NULL DEFAULT '',
  event_type     varchar(128) NOT NULL,
  topic          text NOT NULL DEFAULT '',
  ordering_key   text COLLATE "C",
  version        bigint NOT NULL DEFAULT 0,
  status         smallint NOT NULL,
  locked_by      text,
  locked_until   timestamptz,
  epoch          bigint NOT NULL DEFAULT 0,
  next_retry_at  timestamptz,
  retry_count    int NOT NULL DEFAULT 0,
  error_msg      varchar(256),
  received_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
  processed_at   timestamptz,
  waiting_key    text COLLATE "C",
  message        bytea,
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
  consumer_group varchar(64) NOT NULL,
  event_type     varchar(128) NOT NULL,
  first_seen     timestamptz NOT NULL,
  last_seen      timestamptz NOT NULL,
  PRIMARY KEY (consumer_group, event_type)
);

-- next
-- What people did by hand: retry, skip, discard.
CREATE TABLE {audit} (
  id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at      timestamptz NOT NULL DEFAULT clock_timestamp(),
  actor   text NOT NULL,
  action  text NOT NULL,
  subject text NOT NULL,
  detail  text
);
