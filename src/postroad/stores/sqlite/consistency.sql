-- name: check_orphaned_commands
-- What repair has run again and still brought about nothing is what its handler decides.
SELECT c.command_id AS id, COUNT(*) OVER () AS total
  FROM {commands} c
 WHERE c.status = 'COMPLETED' AND c.seq >= :low AND c.seq <= :high AND c.finished_at >= :since AND c.finished_at < :until
   AND c.command_type = :command_type
   AND NOT EXISTS (SELECT 1 FROM {domain_events} e WHERE e.event_type = :event_type AND e.causation_id =
                   c.command_id)
   AND NOT EXISTS (SELECT 1 FROM {audit} a WHERE a.action = 'repair.command' AND a.subject =
                   c.command_id)
 ORDER BY c.seq LIMIT :limit;

-- name: check_missing_outbox
-- Event and row are of one transaction, and one statement sees both or none: what is being written is never found.
SELECT e.event_id AS id, e.aggregate_type AS aggregate_type, e.aggregate_id AS aggregate_id, COUNT(*) OVER () AS total
  FROM {domain_events} e
 WHERE e.seq >= :low AND e.seq <= :high AND e.occurred_at >= :since
   AND CASE WHEN e.event_type IN (SELECT value FROM json_each(:types)) THEN 1 ELSE 0 END = :within
   AND NOT EXISTS (SELECT 1 FROM {outbox} x WHERE x.{event_id} = e.event_id)
 ORDER BY e.seq LIMIT :limit;

-- name: check_unseen
-- A group is asked about what was sent since it is known to handle the type. Rows that are the same fact in another
-- schema version have no record of their own.
SELECT d.{delivery_event_id} AS id, COUNT(*) OVER () AS total
  FROM {delivery} d {join_facts}
  JOIN {handlers} h ON h.consumer_group = :group AND h.event_type = {o}.{event_type}
 WHERE d.{state} = 'SENT' AND d.{published_at} >= :low AND d.{published_at} < :high AND h.first_seen <= d.{published_at}
   AND {o}.{event_type} IN (SELECT value FROM json_each(:types))
   AND ({o}.{deliver_at} IS NULL OR {o}.{deliver_at} < :until)
   AND COALESCE({o}.{attributes}, '') NOT LIKE '%"copy_of"%'
   AND NOT EXISTS (SELECT 1 FROM {inbox} i WHERE i.consumer_group = :group AND i.event_id = d.{delivery_event_id})
 ORDER BY d.{published_at} LIMIT :limit;
