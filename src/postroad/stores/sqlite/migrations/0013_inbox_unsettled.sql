-- What was refused is kept for ever: told apart here, it need not be walked past by who counts what failed for good.
DROP INDEX postroad_inbox_unsettled;

-- next
CREATE INDEX postroad_inbox_unsettled ON {inbox} (consumer_group, next_retry_at, processed_at) WHERE status <> 1;
