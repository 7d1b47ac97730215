-- What the last check, comparison and examination found, and for whom: one row of each kind.
CREATE TABLE {results} (
  kind  VARCHAR(16) PRIMARY KEY,
  at    DATETIME(6) NOT NULL,
  actor VARCHAR(255) NOT NULL,
  found MEDIUMTEXT NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
