-- What a person skipped is removed in time, like what was sent; it is settled when it is skipped.
UPDATE {delivery} SET {published_at} = UTC_TIMESTAMP(6) WHERE {state} = 'SKIPPED' AND {published_at} IS NULL;
