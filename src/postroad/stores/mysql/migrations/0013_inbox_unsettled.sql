-- What was refused is kept for ever: told apart here, it need not be walked past by who counts what failed for good.
-- All in one statement, so that nobody ever finds the table without its index.
ALTER TABLE {inbox}
  DROP INDEX postroad_inbox_unsettled,
  ADD INDEX postroad_inbox_unsettled (status, consumer_group, next_retry_at, processed_at);
