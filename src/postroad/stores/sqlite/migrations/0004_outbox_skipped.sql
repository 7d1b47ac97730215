-- What a person skipped is removed in time, like what was sent; it is settled when it is skipped.
UPDATE {delivery} SET {published_at} = strftime('%Y-%m-%dT%H:%M:%fZ', 'now') WHERE {state} = 'SKIPPED' AND {published_at} IS NULL;

-- next
CREATE INDEX {skipped_index} ON {delivery} ({published_at}) WHERE {state} = 'SKIPPED';
