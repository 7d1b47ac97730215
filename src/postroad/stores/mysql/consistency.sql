-- name: check_orphaned_commands
-- What repair has run again and still brought about nothing is what its handler decides.
SELECT c.command_id AS id, COUNT(*) OVER () AS total
  FROM {commands} c
 WHERE c.status = 'COMPLETED' AND c.seq >= :low AND c.seq <= :high AND c.finished_at >= :since AND c.finished_at < :until
   AND c.command_type = :command_type
   AND NOT EXISTS (SELECT 1 FROM {domain_events} e WHERE e.event_type = :event_type AND e.causation_id =
                   CONVERT(LOWER(CONCAT_WS('-', SUBSTR(HEX(c.command_id), 1, 8), SUBSTR(HEX(c.command_id), 9, 4), SUBSTR(HEX(c.command_id), 13, 4),
                   SUBSTR(HEX(c.command_id), 17, 4), SUBSTR(HEX(c.command_id), 21))) USING utf8mb4) COLLATE utf8mb4_bin)
   AND NOT EXISTS (SELECT 1 FROM {audit} a WHERE a.action = 'repair.command' AND a.subject =
                   CONVERT(LOWER(CONCAT_WS('-', SUBSTR(HEX(c.command_id), 1, 8), SUBSTR(HEX(c.command_id), 9, 4), SUBSTR(HEX(c.command_id), 13, 4),
                   SUBSTR(HEX(c.command_id), 17, 4), SUBSTR(HEX(c.command_id), 21))) USING utf8mb4) COLLATE utf8mb4_bin)
 ORDER BY c.seq LIMIT :limit;

-- name: outbox_caused
-- From end to end, once for all of them: an index would be paid for by every event that is written.
SELECT DISTINCT x.{causation_id} AS cause FROM {outbox} x
 WHERE x.{causation_id} IN (SELECT j.cause FROM JSON_TABLE(:causes, '$[*]' COLUMNS (cause VARCHAR(36) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$')) j);

-- name: check_missing_outbox
-- Event and row are of one transaction, and one statement sees both or none: what is being written is never found.
SELECT e.event_id AS id, e.aggregate_type AS aggregate_type, e.aggregate_id AS aggregate_id, COUNT(*) OVER () AS total
  FROM {domain_events} e
 WHERE e.seq >= :low AND e.seq <= :high AND e.occurred_at >= :since
   AND CASE WHEN e.event_type IN (SELECT j.name FROM JSON_TABLE(:types, '$[*]' COLUMNS (name VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$')) j) THEN 1 ELSE 0 END = :within
   AND NOT EXISTS (SELECT 1 FROM {outbox} x WHERE x.{event_id} = {stored_id})
 ORDER BY e.seq LIMIT :limit;

-- name: check_unseen
-- A group is asked about what was sent since it is known to handle the type. Rows that are the same fact in another
-- schema version have no record of their own.
SELECT d.{delivery_event_id} AS id, COUNT(*) OVER () AS total
  FROM {delivery} d {join_facts}
  JOIN {handlers} h ON h.consumer_group = :group AND h.event_type = {o}.{event_type}
 WHERE d.{state} = 'SENT' AND d.{published_at} >= :low AND d.{published_at} < :high AND h.first_seen <= d.{published_at}
   AND {o}.{event_type} IN (SELECT j.name FROM JSON_TABLE(:types, '$[*]' COLUMNS (name VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$')) j)
   AND ({o}.{deliver_at} IS NULL OR {o}.{deliver_at} < :until)
   AND COALESCE({o}.{attributes}, '') NOT LIKE '%"copy_of"%'
   AND NOT EXISTS (SELECT 1 FROM {inbox} i WHERE i.consumer_group = :group AND i.event_id = d.{delivery_event_id})
 ORDER BY d.{published_at} LIMIT :limit;

-- name: ledger_sent
-- Per topic, type and minute of the id: how many, and a sum in which any one that is missing shows.
SELECT sent.topic AS topic, sent.event_type AS event_type, sent.slice AS slice, COUNT(*) AS events, SUM(sent.low_bits) AS total
  FROM (SELECT {o}.{topic} AS topic, {o}.{event_type} AS event_type, LOWER(LEFT(HEX(d.{delivery_event_id}), 8)) AS slice,
               CAST(CONV(RIGHT(HEX(d.{delivery_event_id}), 10), 16, 10) AS UNSIGNED) AS low_bits
          FROM {delivery} d {join_facts}
         WHERE d.{state} = 'SENT' AND d.{delivery_event_id} >= :low AND d.{delivery_event_id} < :high
           AND {o}.{deliver_at} IS NULL AND COALESCE({o}.{attributes}, '') NOT LIKE '%"copy_of"%') sent
 GROUP BY sent.topic, sent.event_type, sent.slice;

-- name: ledger_inbox
SELECT seen.topic AS topic, seen.event_type AS event_type, seen.slice AS slice, COUNT(*) AS events, SUM(seen.low_bits) AS total
  FROM (SELECT i.topic AS topic, i.event_type AS event_type, LOWER(LEFT(HEX(i.event_id), 8)) AS slice,
               CAST(CONV(RIGHT(HEX(i.event_id), 10), 16, 10) AS UNSIGNED) AS low_bits
          FROM {inbox} i
         WHERE i.consumer_group = :group AND i.event_id >= :low AND i.event_id < :high AND i.ordering_key IS NOT NULL) seen
 GROUP BY seen.topic, seen.event_type, seen.slice;

-- name: sent_page
-- In the order of sending. Unless it is every one: those whose id has no time in it, and delayed ones.
SELECT d.{delivery_event_id} AS event_id, {o}.{topic} AS topic, {o}.{event_type} AS event_type,
       d.{published_at} AS published_at, {o}.{deliver_at} AS deliver_at
  FROM {delivery} d {join_facts}
 WHERE d.{state} = 'SENT' AND d.{published_at} >= :low AND d.{published_at} < :high
   AND (d.{published_at} > :low OR d.{delivery_event_id} > :after)
   AND (:every = 1 OR {o}.{deliver_at} IS NOT NULL OR SUBSTR(HEX(d.{delivery_event_id}), 13, 1) <> '7')
   AND COALESCE({o}.{attributes}, '') NOT LIKE '%"copy_of"%'
 ORDER BY d.{published_at}, d.{delivery_event_id} LIMIT :limit;

-- name: ledger_singles
-- Page by page along the primary key: those that no minute adds up.
SELECT i.event_id AS event_id FROM {inbox} i
 WHERE i.consumer_group = :group AND i.event_id > :after AND i.received_at >= :since
   AND (i.ordering_key IS NULL OR SUBSTR(HEX(i.event_id), 13, 1) <> '7')
 ORDER BY i.event_id LIMIT :limit;
