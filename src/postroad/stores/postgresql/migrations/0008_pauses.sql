-- What people have told to stand still: a group, an outbox, or a worker, which never goes on.
CREATE TABLE {pauses} (
  kind   varchar(16) NOT NULL,
  name   varchar(255) NOT NULL,
  actor  text NOT NULL,
  reason text NOT NULL,
  since  timestamptz NOT NULL,
  PRIMARY KEY (kind, name)
);
