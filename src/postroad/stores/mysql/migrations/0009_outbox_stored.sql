-- MariaDB can miss rows by an indexed virtual column while old index entries wait to be purged. A column does not become
-- a stored one: it is made anew, all in one statement, so that nobody ever finds the table without it. The table is
-- copied meanwhile, and who writes into it waits.
ALTER TABLE {delivery}
  DROP INDEX {unsent_index},
  DROP COLUMN unsent_shard,
  ADD COLUMN unsent_shard SMALLINT GENERATED ALWAYS AS (IF({state} IN ('SENT', 'SKIPPED'), NULL, COALESCE({shard}, -1))) STORED,
  ADD INDEX {unsent_index} (unsent_shard, {ordering_key}, {delivery_version});
