PRAGMA foreign_keys=OFF;
BEGIN TRANSACTION;
CREATE TABLE IF NOT EXISTS "postroad_migration" (name VARCHAR(128) NOT NULL, target VARCHAR(128) NOT NULL, applied_at TEXT NOT NULL, PRIMARY KEY (name, target));
INSERT INTO postroad_migration VALUES('0001_core','','2026-11-15T23:10:29.141573Z');
INSERT INTO postroad_migration VALUES('0002_outbox_append_only','postroad_facts','2026-11-15T23:10:29.146244Z');
INSERT INTO postroad_migration VALUES('0002_outbox_in_row','postroad_outbox','2026-11-15T23:10:29.148743Z');
INSERT INTO postroad_migration VALUES('0003_outbox_routines','postroad_outbox','2026-11-15T23:10:29.152192Z');
INSERT INTO postroad_migration VALUES('0003_outbox_routines','postroad_facts','2026-11-15T23:10:29.155686Z');
CREATE TABLE IF NOT EXISTS "postroad_version" (
  aggregate_type TEXT NOT NULL,
  aggregate_id   TEXT NOT NULL,
  version        INTEGER NOT NULL,
  PRIMARY KEY (aggregate_type, aggregate_id)
);
INSERT INTO postroad_version VALUES('parcel','moving',4);
INSERT INTO postroad_version VALUES('parcel','waiting',4);
INSERT INTO postroad_version VALUES('parcel','worn',4);
CREATE TABLE IF NOT EXISTS "postroad_shard" (
  outbox     TEXT NOT NULL,
  shard      INTEGER NOT NULL,
  owner      TEXT,
  token      TEXT,
  epoch      INTEGER NOT NULL DEFAULT 0,
  expires_at TEXT,
  PRIMARY KEY (outbox, shard)
);
CREATE TABLE IF NOT EXISTS "postroad_worker" (
  id         TEXT PRIMARY KEY,
  kind       TEXT NOT NULL,
  name       TEXT NOT NULL,
  detail     TEXT NOT NULL DEFAULT '',
  started_at TEXT NOT NULL,
  seen_at    TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS "postroad_inbox" (
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
CREATE TABLE IF NOT EXISTS "postroad_handler" (
  consumer_group TEXT NOT NULL,
  event_type     TEXT NOT NULL,
  first_seen     TEXT NOT NULL,
  last_seen      TEXT NOT NULL,
  PRIMARY KEY (consumer_group, event_type)
);
CREATE TABLE IF NOT EXISTS "postroad_audit" (
  id      INTEGER PRIMARY KEY AUTOINCREMENT,
  at      TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
  actor   TEXT NOT NULL,
  action  TEXT NOT NULL,
  subject TEXT NOT NULL,
  detail  TEXT
);
CREATE TABLE IF NOT EXISTS "postroad_facts" (
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
INSERT INTO postroad_facts VALUES('01a1e179-f739-7320-8b82-26d6dcc74170','office.parcel.events','parcel.posted','parcel','moving',3,1,X'7b2270617263656c223a226d6f76696e67222c226e6f7465223a22227d','application/json','','01a1e179-f739-7320-8b82-26d6dcc74170',NULL,'{"source_service":"office","headers":{"kept":"yes"}}','2026-11-15T23:10:29.177140Z','2026-11-15T23:10:29.178Z',NULL);
INSERT INTO postroad_facts VALUES('01a1e179-f73b-754d-a2db-f951dd2e18d9','office.parcel.events','parcel.posted','parcel','moving',4,1,X'7b2270617263656c223a226d6f76696e67222c226e6f7465223a22227d','application/json','','01a1e179-f73b-754d-a2db-f951dd2e18d9',NULL,'{"source_service":"office","headers":{"kept":"yes"}}','2026-11-15T23:10:29.179513Z','2026-11-15T23:10:29.180Z',NULL);
INSERT INTO postroad_facts VALUES('01a1e179-f73d-7fc9-9968-3036c5b93acb','office.parcel.events','parcel.posted','parcel','waiting',3,1,X'7b2270617263656c223a2277616974696e67222c226e6f7465223a22227d','application/json','','01a1e179-f73d-7fc9-9968-3036c5b93acb',NULL,'{"source_service":"office","headers":{"kept":"yes"}}','2026-11-15T23:10:29.181197Z','2026-11-15T23:10:29.181Z',NULL);
INSERT INTO postroad_facts VALUES('01a1e179-f73e-7090-af2a-c3232cf03bc1','office.parcel.events','parcel.posted','parcel','waiting',4,1,X'7b2270617263656c223a2277616974696e67222c226e6f7465223a22227d','application/json','','01a1e179-f73e-7090-af2a-c3232cf03bc1',NULL,'{"source_service":"office","headers":{"kept":"yes"}}','2026-11-15T23:10:29.182943Z','2026-11-15T23:10:29.183Z',NULL);
INSERT INTO postroad_facts VALUES('01a1e179-f740-72c0-add6-c5a01c51fe70','office.parcel.events','parcel.posted','parcel','worn',3,1,X'7b2270617263656c223a22776f726e222c226e6f7465223a22227d','application/json','','01a1e179-f740-72c0-add6-c5a01c51fe70',NULL,'{"source_service":"office","headers":{"kept":"yes"}}','2026-11-15T23:10:29.184704Z','2026-11-15T23:10:29.185Z',NULL);
INSERT INTO postroad_facts VALUES('01a1e179-f742-7c94-b22d-9a445c3afcd3','office.parcel.events','parcel.posted','parcel','worn',4,1,X'7b2270617263656c223a22776f726e222c226e6f7465223a22227d','application/json','','01a1e179-f742-7c94-b22d-9a445c3afcd3',NULL,'{"source_service":"office","headers":{"kept":"yes"}}','2026-11-15T23:10:29.186289Z','2026-11-15T23:10:29.187Z',NULL);
CREATE TABLE IF NOT EXISTS "postroad_facts_delivery" (
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
INSERT INTO postroad_facts_delivery VALUES('01a1e179-f739-7320-8b82-26d6dcc74170',3,'parcel/moving',111,'SENT',0,NULL,NULL,'2000-01-01 00:00:00');
INSERT INTO postroad_facts_delivery VALUES('01a1e179-f73b-754d-a2db-f951dd2e18d9',4,'parcel/moving',111,'NEW',0,NULL,NULL,NULL);
INSERT INTO postroad_facts_delivery VALUES('01a1e179-f73d-7fc9-9968-3036c5b93acb',3,'parcel/waiting',165,'RETRY',1,'2000-01-01 00:00:00','no',NULL);
INSERT INTO postroad_facts_delivery VALUES('01a1e179-f73e-7090-af2a-c3232cf03bc1',4,'parcel/waiting',165,'NEW',0,NULL,NULL,NULL);
INSERT INTO postroad_facts_delivery VALUES('01a1e179-f740-72c0-add6-c5a01c51fe70',3,'parcel/worn',255,'FAILED',5,'2000-01-01 00:00:00','no',NULL);
INSERT INTO postroad_facts_delivery VALUES('01a1e179-f742-7c94-b22d-9a445c3afcd3',4,'parcel/worn',255,'NEW',0,NULL,NULL,NULL);
CREATE TABLE IF NOT EXISTS "postroad_outbox" (
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
  ordering_key    TEXT,
  shard           INTEGER,
  state           TEXT NOT NULL DEFAULT 'NEW',
  attempts        INTEGER NOT NULL DEFAULT 0,
  next_attempt_at TEXT,
  last_error      TEXT,
  published_at    TEXT,
  UNIQUE (aggregate_type, aggregate_id, version)
);
INSERT INTO postroad_outbox VALUES('01a1e179-f726-72e3-ac7a-d2ea0321b93d','office.parcel.events','parcel.posted','parcel','moving',1,1,X'7b2270617263656c223a226d6f76696e67222c226e6f7465223a22227d','application/json','','01a1e179-f726-72e3-ac7a-d2ea0321b93d',NULL,'{"source_service":"office","headers":{"kept":"yes"}}','2026-11-15T23:10:29.158142Z','2026-11-15T23:10:29.159Z',NULL,'parcel/moving',111,'SENT',0,NULL,NULL,'2000-01-01 00:00:00');
INSERT INTO postroad_outbox VALUES('01a1e179-f728-78fc-8a58-500cb7568045','office.parcel.events','parcel.posted','parcel','moving',2,1,X'7b2270617263656c223a226d6f76696e67222c226e6f7465223a22227d','application/json','','01a1e179-f728-78fc-8a58-500cb7568045',NULL,'{"source_service":"office","headers":{"kept":"yes"}}','2026-11-15T23:10:29.160724Z','2026-11-15T23:10:29.161Z',NULL,'parcel/moving',111,'NEW',0,NULL,NULL,NULL);
INSERT INTO postroad_outbox VALUES('01a1e179-f72a-7458-878a-ddb3bbb0a6bc','office.parcel.events','parcel.posted','parcel','waiting',1,1,X'7b2270617263656c223a2277616974696e67222c226e6f7465223a22227d','application/json','','01a1e179-f72a-7458-878a-ddb3bbb0a6bc',NULL,'{"source_service":"office","headers":{"kept":"yes"}}','2026-11-15T23:10:29.162432Z','2026-11-15T23:10:29.163Z',NULL,'parcel/waiting',165,'RETRY',1,'2000-01-01 00:00:00','no',NULL);
INSERT INTO postroad_outbox VALUES('01a1e179-f72c-7b4c-9be3-0fdc9dcd511b','office.parcel.events','parcel.posted','parcel','waiting',2,1,X'7b2270617263656c223a2277616974696e67222c226e6f7465223a22227d','application/json','','01a1e179-f72c-7b4c-9be3-0fdc9dcd511b',NULL,'{"source_service":"office","headers":{"kept":"yes"}}','2026-11-15T23:10:29.164118Z','2026-11-15T23:10:29.164Z',NULL,'parcel/waiting',165,'NEW',0,NULL,NULL,NULL);
INSERT INTO postroad_outbox VALUES('01a1e179-f72d-7a7f-a63f-9b8a1813affd','office.parcel.events','parcel.posted','parcel','worn',1,1,X'7b2270617263656c223a22776f726e222c226e6f7465223a22227d','application/json','','01a1e179-f72d-7a7f-a63f-9b8a1813affd',NULL,'{"source_service":"office","headers":{"kept":"yes"}}','2026-11-15T23:10:29.165735Z','2026-11-15T23:10:29.166Z',NULL,'parcel/worn',255,'FAILED',5,'2000-01-01 00:00:00','no',NULL);
INSERT INTO postroad_outbox VALUES('01a1e179-f72f-7e95-b240-df73ad156122','office.parcel.events','parcel.posted','parcel','worn',2,1,X'7b2270617263656c223a22776f726e222c226e6f7465223a22227d','application/json','','01a1e179-f72f-7e95-b240-df73ad156122',NULL,'{"source_service":"office","headers":{"kept":"yes"}}','2026-11-15T23:10:29.167450Z','2026-11-15T23:10:29.168Z',NULL,'parcel/worn',255,'NEW',0,NULL,NULL,NULL);
DELETE FROM sqlite_sequence;
CREATE INDEX postroad_inbox_waiting ON "postroad_inbox" (consumer_group, waiting_key) WHERE waiting_key IS NOT NULL;
CREATE INDEX postroad_inbox_unsettled ON "postroad_inbox" (consumer_group, next_retry_at) WHERE status <> 1;
CREATE INDEX postroad_inbox_processed ON "postroad_inbox" (processed_at) WHERE status = 1;
CREATE INDEX "postroad_outbox_unsent" ON "postroad_outbox" ("shard", "ordering_key", "version") WHERE "state" NOT IN ('SENT', 'SKIPPED');
CREATE INDEX "postroad_outbox_sent" ON "postroad_outbox" ("published_at") WHERE "state" = 'SENT';
CREATE VIEW "postroad_outbox_add" AS
SELECT '' AS event_id, '' AS topic, '' AS event_type, '' AS aggregate_type, '' AS aggregate_id, '' AS ordering_key,
       0 AS shard, 0 AS version, 0 AS schema_version, x'' AS payload, '' AS content_type, '' AS tenant_id,
       '' AS correlation_id, '' AS causation_id, '' AS attributes, '' AS occurred_at, '' AS deliver_at;
CREATE TRIGGER "postroad_outbox_add_trigger" INSTEAD OF INSERT ON "postroad_outbox_add"
WHEN NOT EXISTS (SELECT 1 FROM "postroad_outbox" WHERE "event_id" = NEW.event_id)
BEGIN
  SELECT RAISE(ABORT, 'postroad: version conflict') FROM "postroad_version"
   WHERE aggregate_type = NEW.aggregate_type AND aggregate_id = NEW.aggregate_id AND NEW.version <= version;
  INSERT INTO "postroad_version" (aggregate_type, aggregate_id, version)
  VALUES (NEW.aggregate_type, NEW.aggregate_id, COALESCE(NEW.version, 1))
  ON CONFLICT (aggregate_type, aggregate_id) DO UPDATE SET version = COALESCE(NEW.version, "postroad_version".version + 1);
  INSERT INTO "postroad_outbox" ("event_id", "topic", "event_type", "aggregate_type", "aggregate_id", "version",
    "schema_version", "payload", "content_type", "tenant_id", "correlation_id", "causation_id", "attributes",
    "occurred_at", "deliver_at", "ordering_key", "shard")
  VALUES (NEW.event_id, NEW.topic, NEW.event_type, NEW.aggregate_type, NEW.aggregate_id, (SELECT version FROM postroad_version WHERE aggregate_type = NEW.aggregate_type AND aggregate_id = NEW.aggregate_id),
    NEW.schema_version, NEW.payload, NEW.content_type, NEW.tenant_id, NEW.correlation_id, NEW.causation_id,
    NEW.attributes, NEW.occurred_at, NEW.deliver_at, NEW.ordering_key, NEW.shard);
  
END;
CREATE INDEX "postroad_facts_unsent" ON "postroad_facts_delivery" ("shard", "ordering_key", "version") WHERE "state" NOT IN ('SENT', 'SKIPPED');
CREATE INDEX "postroad_facts_sent" ON "postroad_facts_delivery" ("published_at") WHERE "state" = 'SENT';
CREATE VIEW "postroad_facts_add" AS
SELECT '' AS event_id, '' AS topic, '' AS event_type, '' AS aggregate_type, '' AS aggregate_id, '' AS ordering_key,
       0 AS shard, 0 AS version, 0 AS schema_version, x'' AS payload, '' AS content_type, '' AS tenant_id,
       '' AS correlation_id, '' AS causation_id, '' AS attributes, '' AS occurred_at, '' AS deliver_at;
CREATE TRIGGER "postroad_facts_add_trigger" INSTEAD OF INSERT ON "postroad_facts_add"
WHEN NOT EXISTS (SELECT 1 FROM "postroad_facts" WHERE "event_id" = NEW.event_id)
BEGIN
  SELECT RAISE(ABORT, 'postroad: version conflict') FROM "postroad_version"
   WHERE aggregate_type = NEW.aggregate_type AND aggregate_id = NEW.aggregate_id AND NEW.version <= version;
  INSERT INTO "postroad_version" (aggregate_type, aggregate_id, version)
  VALUES (NEW.aggregate_type, NEW.aggregate_id, COALESCE(NEW.version, 1))
  ON CONFLICT (aggregate_type, aggregate_id) DO UPDATE SET version = COALESCE(NEW.version, "postroad_version".version + 1);
  INSERT INTO "postroad_facts" ("event_id", "topic", "event_type", "aggregate_type", "aggregate_id", "version",
    "schema_version", "payload", "content_type", "tenant_id", "correlation_id", "causation_id", "attributes",
    "occurred_at", "deliver_at")
  VALUES (NEW.event_id, NEW.topic, NEW.event_type, NEW.aggregate_type, NEW.aggregate_id, (SELECT version FROM postroad_version WHERE aggregate_type = NEW.aggregate_type AND aggregate_id = NEW.aggregate_id),
    NEW.schema_version, NEW.payload, NEW.content_type, NEW.tenant_id, NEW.correlation_id, NEW.causation_id,
    NEW.attributes, NEW.occurred_at, NEW.deliver_at);
  INSERT INTO "postroad_facts_delivery" ("event_id", "version", "ordering_key", "shard") VALUES (NEW.event_id, (SELECT version FROM postroad_version WHERE aggregate_type = NEW.aggregate_type AND aggregate_id = NEW.aggregate_id), NEW.ordering_key, NEW.shard);
END;
INSERT INTO postroad_shard (outbox, shard)
WITH RECURSIVE n(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n < 255)
SELECT o.name, n.n FROM n, (SELECT 'postroad_outbox' AS name UNION SELECT 'postroad_facts') o;
COMMIT;
