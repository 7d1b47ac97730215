-- What the last check, comparison and examination found, and for whom: one row of each kind.
CREATE TABLE {results} (
  kind  varchar(16) PRIMARY KEY,
  at    timestamptz NOT NULL,
  actor text NOT NULL,
  found text NOT NULL
);
