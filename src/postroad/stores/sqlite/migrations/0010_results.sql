-- What the last check, comparison and examination found, and for whom: one row of each kind.
CREATE TABLE {results} (
  kind  TEXT PRIMARY KEY,
  at    TEXT NOT NULL,
  actor TEXT NOT NULL,
  found TEXT NOT NULL
);
