-- Times are microseconds since 1970 in UTC, given by the caller's clock.

CREATE TABLE topic (
    id   INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
);

CREATE TABLE subscription (
    id           INTEGER PRIMARY KEY,
    name         TEXT NOT NULL UNIQUE,
    topic        INTEGER NOT NULL REFERENCES topic,
    ack_deadline REAL NOT NULL,
    retention    REAL NOT NULL,
    max_attempts INTEGER NOT NULL
);
CREATE INDEX subscription_by_topic ON subscription (topic);

-- The id is the order of arrival. AUTOINCREMENT, because the id of a purged message must not come again.
CREATE TABLE message (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    topic        INTEGER NOT NULL REFERENCES topic,
    key          TEXT NOT NULL,
    published_at INTEGER NOT NULL,
    since        INTEGER NOT NULL, -- published, or for a delayed message due
    size         INTEGER NOT NULL,
    attributes   BLOB NOT NULL,
    data         BLOB NOT NULL
);
CREATE INDEX message_by_time ON message (topic, published_at);

-- One consumer at work. Its lease covers everything it holds, so that extending it is one small update.
CREATE TABLE receiver (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    subscription INTEGER NOT NULL REFERENCES subscription,
    expires_at   INTEGER NOT NULL
);
CREATE INDEX receiver_by_expiry ON receiver (subscription, expires_at);

-- What is not settled. A row goes when its message is acknowledged or dead, so history costs nothing here.
CREATE TABLE delivery (
    subscription INTEGER NOT NULL REFERENCES subscription,
    message      INTEGER NOT NULL REFERENCES message,
    key          TEXT NOT NULL,
    since        INTEGER NOT NULL,
    due          INTEGER NOT NULL,
    attempt      INTEGER NOT NULL DEFAULT 0,
    holder       INTEGER, -- the receiver that has it
    ready_at     INTEGER, -- due, if nobody has it and nothing of its key stands before it; else NULL
    PRIMARY KEY (subscription, message)
) WITHOUT ROWID;
-- Only heads of keys are in here: a backlog behind a blocked key is never looked at.
CREATE INDEX delivery_ready ON delivery (subscription, ready_at, message) WHERE ready_at IS NOT NULL;
CREATE INDEX delivery_lane ON delivery (subscription, key, message) WHERE key <> '';
CREATE INDEX delivery_held ON delivery (holder, key) WHERE holder IS NOT NULL;

CREATE TABLE dead_letter (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    topic        INTEGER NOT NULL REFERENCES topic,
    subscription INTEGER NOT NULL REFERENCES subscription,
    message      INTEGER NOT NULL REFERENCES message,
    reason       TEXT NOT NULL,
    attempts     INTEGER NOT NULL,
    died_at      INTEGER NOT NULL
);
CREATE INDEX dead_letter_by_topic ON dead_letter (topic, id);
CREATE INDEX dead_letter_by_message ON dead_letter (message);

CREATE TABLE snapshot (
    subscription INTEGER NOT NULL REFERENCES subscription,
    name         TEXT NOT NULL,
    position     INTEGER NOT NULL, -- the last message that had arrived
    unsettled    TEXT NOT NULL,    -- those up to the position that were not settled, as a JSON array
    PRIMARY KEY (subscription, name)
) WITHOUT ROWID;
