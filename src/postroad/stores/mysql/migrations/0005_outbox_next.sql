-- What is due, for a reader that fetches large payloads by itself, as many as it can hold; relays of the release before
-- still call the other one. Key heads by skip-scan: one index probe per key, however long its backlog; in a routine,
-- because only here is the key to go on from a constant to the optimiser, which otherwise scans. A head that is parked
-- or waits for its next attempt holds back its key and is still listed, so that the reader's cursor passes it.
CREATE PROCEDURE {next}(
  a_shards LONGTEXT CHARSET utf8mb4, a_after LONGTEXT CHARSET utf8mb4, a_depth INT, a_most INT, a_inline INT
)
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
         {o}.{schema_version} AS schema_version, LENGTH({payload_out}) AS size,
         IF(LENGTH({payload_out}) <= a_inline, {payload_out}, NULL) AS payload, {o}.{content_type} AS content_type,
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
