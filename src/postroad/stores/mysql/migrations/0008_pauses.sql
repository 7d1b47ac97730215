-- What people have told to stand still: a group, an outbox, or a worker, which never goes on.
CREATE TABLE {pauses} (
  kind   VARCHAR(16) NOT NULL,
  name   VARCHAR(255) NOT NULL,
  actor  VARCHAR(255) NOT NULL,
  reason TEXT NOT NULL,
  since  DATETIME(6) NOT NULL,
  PRIMARY KEY (kind, name)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
