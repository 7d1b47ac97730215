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
  -- A locking read, because a snapshot could show a version that is long past.
  INSERT INTO {versions} (aggregate_type, aggregate_id, version) VALUES (a_aggregate_type, a_aggregate_id, 0)
  ON DUPLICATE KEY UPDATE version = version;
  SELECT version INTO given FROM {versions}
   WHERE aggregate_type = a_aggregate_type COLLATE utf8mb4_bin AND aggregate_id = a_aggregate_id COLLATE utf8mb4_bin
     FOR UPDATE;
  IF a_version <= given THEN
    SET taken = TRUE;
  ELSE
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
  END IF;
  IF NOT taken THEN
    UPDATE {versions} SET version = given
     WHERE aggregate_type = a_aggregate_type COLLATE utf8mb4_bin AND aggregate_id = a_aggregate_id COLLATE utf8mb4_bin;
    {insert_delivery}
  -- The same event again is nothing new. Asked only now: a read in a routine locks, and one that finds nothing would
  -- lock the gap into which all others write.
  ELSEIF NOT EXISTS (SELECT 1 FROM {outbox} WHERE {event_id} = a_event_id LOCK IN SHARE MODE) THEN
    SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = 31001, MESSAGE_TEXT = 'postroad: version conflict';
  END IF;
END;

-- next
-- What is due. Key heads by skip-scan: one index probe per key, however long its backlog; in a routine, because only
-- here is the key to go on from a constant to the optimiser, which otherwise scans. A head that is parked or waits for
-- its next attempt holds back its key and is still listed, so that the reader's cursor passes it.
CREATE PROCEDURE {due}(a_shards LONGTEXT CHARSET utf8mb4, a_after LONGTEXT CHARSET utf8mb4, a_depth INT, a_most INT)
READS SQL DATA
BEGIN
  DECLARE found LONGTEXT CHARSET utf8mb4 DEFAULT '';
  DECLARE seen INT;
  DECLARE at_shard SMALLINT;
  DECLARE at_key VARCHAR(520) CHARSET utf8mb4 COLLATE utf8mb4_bin;
  DECLARE first, last BIGINT;
  DECLARE at_end BOOLEAN DEFAULT FALSE;
  DECLARE places CURSOR FOR
    SELECT s.shard, COALESCE(a.after, '')
      FROM JSON_TABLE(a_shards, '$[*]' COLUMNS (n FOR ORDINALITY, shard SMALLINT PATH '$')) s
      LEFT JOIN JSON_TABLE(a_after, '$[*]' COLUMNS (n FOR ORDINALITY, after VARCHAR(520) CHARSET utf8mb4 COLLATE utf8mb4_bin PATH '$')) a ON a.n = s.n
     -- Not EXISTS, which might become a join with the whole backlog.
     WHERE (SELECT d.unsent_shard FROM {delivery} d WHERE d.unsent_shard = s.shard LIMIT 1) IS NOT NULL;
  DECLARE CONTINUE HANDLER FOR NOT FOUND SET at_end = TRUE;
  OPEN places;
  each_shard: LOOP
    FETCH places INTO at_shard, at_key;
    IF at_end THEN
      LEAVE each_shard;
    END IF;
    SET seen = 0;
    each_key: LOOP
      SELECT d.{ordering_key}, d.{delivery_version} INTO at_key, first FROM {delivery} d FORCE INDEX ({unsent_index})
       WHERE d.unsent_shard = at_shard AND d.{ordering_key} > at_key
       ORDER BY d.{ordering_key}, d.{delivery_version} LIMIT 1;
      IF at_end THEN
        SET at_end = FALSE;
        LEAVE each_key;
      END IF;
      SELECT d.{delivery_version} INTO last FROM {delivery} d FORCE INDEX ({unsent_index})
       WHERE d.unsent_shard = at_shard AND d.{ordering_key} = at_key ORDER BY d.{delivery_version} DESC LIMIT 1;
      SET found = CONCAT(found, ',', JSON_ARRAY(at_shard, at_key, first, last));
      SET seen = seen + 1;
      IF seen >= a_depth THEN
        LEAVE each_key;
      END IF;
    END LOOP;
  END LOOP;
  CLOSE places;
  WITH RECURSIVE heads AS (
    SELECT f.shard, f.ordering_key, f.version, f.last,
           d.{state} <> 'FAILED' AND (d.{next_attempt_at} IS NULL OR d.{next_attempt_at} <= UTC_TIMESTAMP(6)) AS due
      FROM JSON_TABLE(CONCAT('[', SUBSTRING(found, 2), ']'), '$[*]' COLUMNS (
             shard SMALLINT PATH '$[0]', ordering_key VARCHAR(520) CHARSET utf8mb4 COLLATE utf8mb4_bin PATH '$[1]',
             version BIGINT PATH '$[2]', last BIGINT PATH '$[3]')) f
      JOIN {delivery} d
        ON d.unsent_shard = f.shard AND d.{ordering_key} = f.ordering_key AND d.{delivery_version} = f.version
  ), share AS (
    SELECT LEAST(GREATEST(1, a_most DIV GREATEST(1, count(*))), 1000) AS events, MAX(h.last - h.version) AS longest
      FROM heads h WHERE h.due
  ), steps AS (
    SELECT CAST(0 AS SIGNED) AS n
    UNION ALL
    SELECT p.n + 1 FROM steps p, share WHERE p.n + 1 < share.events AND p.n < share.longest
  )
  -- Each version by itself, because a range of them would be read to the end of the backlog.
  SELECT h.shard, h.ordering_key, {o}.{event_id} AS event_id, d.{state} AS state, d.{attempts} AS attempts,
         {o}.{version} AS version, {o}.{topic} AS topic, {o}.{event_type} AS event_type,
         {o}.{aggregate_type} AS aggregate_type, {o}.{aggregate_id} AS aggregate_id,
         {o}.{schema_version} AS schema_version, {payload_out} AS payload, {o}.{content_type} AS content_type,
         {o}.{tenant_id} AS tenant_id, {o}.{correlation_id} AS correlation_id, {o}.{causation_id} AS causation_id,
         {o}.{attributes} AS attributes, {o}.{occurred_at} AS occurred_at, {o}.{deliver_at} AS deliver_at
    FROM heads h
    LEFT JOIN steps p ON h.due AND p.n <= h.last - h.version
    LEFT JOIN {delivery} d
      ON p.n IS NOT NULL AND d.unsent_shard = h.shard AND d.{ordering_key} = h.ordering_key
     AND d.{delivery_version} = h.version + p.n
    {join_facts}
   WHERE NOT h.due OR d.{delivery_event_id} IS NOT NULL
   ORDER BY h.shard, h.ordering_key, d.{delivery_version};
END;
