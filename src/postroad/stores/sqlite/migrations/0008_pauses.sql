-- What people have told to stand still: a group, an outbox, or a worker, which never goes on.
CREATE TABLE {pauses} (
  kind   TEXT NOT NULL,
  name   TEXT NOT NULL,
  actor  TEXT NOT NULL,
  reason TEXT NOT NULL,
  since  TEXT NOT NULL,
  PRIMARY KEY (kind, name)
);
