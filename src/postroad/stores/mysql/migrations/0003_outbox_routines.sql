-- The relay looks only at what is not sent yet. There are no partial indexes here, so sent rows stand together
-- under NULL, out of the relay's way. Rows that other programs wrote stand under -1 until they have their shard.
ALTER TABLE {delivery} ADD COLUMN unsent_shard SMALLINT GENERATED ALWAYS AS (IF({state} IN ('SENT', 'SKIPPED'), NULL, COALESCE({shard}, -1))) VIRTUAL;

-- next
CREATE INDEX {unsent_index} ON {delivery} (unsent_shard, {ordering_key}, {delivery_version});

-- next
CREATE INDEX {sent_index} ON {delivery} ({state}, {published_at});

-- next
INSERT INTO {shards} (outbox, shard)
SELECT {outbox_literal}, high.n * 16 + low.n
  FROM (SELECT 0 n UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6
        UNION SELECT 7 UNION SELECT 8 UNION SELECT 9 UNION SELECT 10 UNION SELECT 11 UNION SELECT 12
        UNION SELECT 13 UNION SELECT 14 UNION SELECT 15) high,
       (SELECT 0 n UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6
        UNION SELECT 7 UNION SELECT 8 UNION SELECT 9 UNION SELECT 10 UNION SELECT 11 UNION SELECT 12
        UNION SELECT 13 UNION SELECT 14 UNION SELECT 15) low;

-- next
-- Writes an event and gives it its version. The counter row stays locked until the commit, so no lower version
-- can become visible after a higher one. An event id that is already there is left as it is.
CREATE PROCEDURE {add}(
  a_event_id {id_type}, a_topic VARCHAR(255), a_event_type VARCHAR(128), a_aggregate_type VARCHAR(128) CHARSET utf8mb4,
  a_aggregate_id VARCHAR(255) CHARSET utf8mb4, a_ordering_key VARCHAR(520) CHARSET utf8mb4, a_shard SMALLINT,
  a_version BIGINT, a_schema_version INT, a_payload LONGBLOB, a_content_type VARCHAR(255), a_tenant_id VARCHAR(1024) CHARSET utf8mb4,
  a_correlation_id VARCHAR(1024) CHARSET utf8mb4, a_causation_id VARCHAR(1024) CHARSET utf8mb4,
  a_attributes LONGTEXT CHARSET utf8mb4, a_occurred_at DATETIME(6), a_deliver_at DATETIME(6)
)
BEGIN
  DECLARE given BIGINT;
  DECLARE taken BOOLEAN DEFAULT FALSE;
  IF NOT EXISTS (SELECT 1 FROM {outbox} WHERE {event_id} = a_event_id) THEN
    -- A locking read, because a snapshot could show a version that is long past.
    INSERT INTO {versions} (aggregate_type, aggregate_id, version) VALUES (a_aggregate_type, a_aggregate_id, 0)
    ON DUPLICATE KEY UPDATE version = version;
    SELECT version INTO given FROM {versions}
     WHERE aggregate_type = a_aggregate_type COLLATE utf8mb4_bin AND aggregate_id = a_aggregate_id COLLATE utf8mb4_bin
       FOR UPDATE;
    IF a_version <= given THEN
      SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 31001, MESSAGE_TEXT = 'postroad: version conflict';
    END IF;
    SET given = COALESCE(a_version, given + 1);
    BEGIN
      DECLARE CONTINUE HANDLER FOR 1062 SET taken = TRUE;
      INSERT INTO {outbox} ({event_id}, {topic}, {event_type}, {aggregate_type}, {aggregate_id}, {version},
        {schema_version}, {payload}, {content_type}, {tenant_id}, {correlation_id}, {causation_id}, {attributes},
        {occurred_at}, {deliver_at}{delivery_columns})
      VALUES (a_event_id, a_topic, a_event_type, a_aggregate_type, a_aggregate_id, given,
        a_schema_version, {payload_in}, a_content_type, a_tenant_id, a_correlation_id, a_causation_id, a_attributes,
        a_occurred_at, a_deliver_at{delivery_values});
    END;
    IF NOT taken THEN
      UPDATE {versions} SET version = given
       WHERE aggregate_type = a_aggregate_type COLLATE utf8mb4_bin AND aggregate_id = a_aggregate_id COLLATE utf8mb4_bin;
      {insert_delivery}
    -- Whoever held the counter until now may have written this very event: then there is nothing to do.
    ELSEIF NOT EXISTS (SELECT 1 FROM {outbox} WHERE {event_id} = a_event_id LOCK IN SHARE MODE) THEN
      SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 31001, MESSAGE_TEXT = 'postroad: version conflict';
    END IF;
  END IF;
END;
