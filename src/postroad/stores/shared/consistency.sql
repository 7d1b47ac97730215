-- name: check_commands_span
SELECT MIN(seq) AS low, MAX(seq) AS high, COUNT(*) AS total FROM {commands}
 WHERE status = 'COMPLETED' AND finished_at >= :since AND finished_at < :until;

-- name: check_events_span
SELECT MIN(seq) AS low, MAX(seq) AS high, COUNT(*) AS total FROM {domain_events} WHERE occurred_at >= :since;

-- name: events_newest
SELECT MAX(seq) AS seq FROM {domain_events};

-- name: check_handled_count
-- Not group by group: of an index alone it takes a hundredth of the check, of the rows a tenth.
SELECT COUNT(*) AS total FROM {inbox} WHERE status = 1 AND processed_at >= :since;

-- name: check_version_gaps
-- Most stand beside the one before; only the others are looked for, each by itself, which takes longer.
SELECT e.aggregate_type AS aggregate_type, e.aggregate_id AS aggregate_id, e.version AS version, COUNT(*) OVER () AS total
  FROM (SELECT seq, aggregate_type, aggregate_id, aggregate_version AS version,
               LAG(aggregate_version) OVER (PARTITION BY aggregate_type, aggregate_id ORDER BY aggregate_version) AS beside
          FROM {domain_events} WHERE seq >= :low AND seq <= :high AND occurred_at >= :since) e
 WHERE e.version > 1 AND COALESCE(e.beside, 0) < e.version - 1
   AND NOT EXISTS (SELECT 1 FROM {domain_events} b
                    WHERE b.aggregate_type = e.aggregate_type AND b.aggregate_id = e.aggregate_id
                      AND b.aggregate_version = e.version - 1)
 ORDER BY e.seq LIMIT :limit;

-- name: check_out_of_order
-- Handled after a later version of the same aggregate. Delayed events stand outside every order.
WITH handled AS (
  SELECT i.event_id AS id, i.version AS version,
         LAG(i.version) OVER (PARTITION BY i.ordering_key, i.topic ORDER BY i.processed_at, i.version) AS last_version
    FROM {inbox} i
   WHERE i.consumer_group = :group AND i.status = 1 AND i.processed_at >= :since
     AND i.ordering_key IS NOT NULL AND i.version > 0)
SELECT id, COUNT(*) OVER () AS total FROM handled WHERE version < last_version LIMIT :limit;

-- name: check_doubled
-- The same version of the same aggregate under two ids: one fact had its effect twice.
WITH handled AS (
  SELECT i.event_id AS id, i.version AS version,
         LAG(i.version) OVER (PARTITION BY i.ordering_key, i.topic ORDER BY i.version) AS last_version
    FROM {inbox} i
   WHERE i.consumer_group = :group AND i.status = 1 AND i.processed_at >= :since
     AND i.ordering_key IS NOT NULL AND i.version > 0)
SELECT id, COUNT(*) OVER () AS total FROM handled WHERE version = last_version LIMIT :limit;

-- name: check_projected
-- In the order in which they were handled, page by page along the index.
SELECT i.event_id, i.event_type, i.ordering_key, i.version, i.processed_at FROM {inbox} i
 WHERE i.consumer_group = :group AND i.status = 1 AND i.processed_at >= :since
   AND (i.processed_at > :since OR i.event_id > :after)
   AND i.ordering_key IS NOT NULL AND i.version > 0 AND i.error_msg IS NULL
 ORDER BY i.processed_at, i.event_id LIMIT :limit;

-- name: check_expired_commands
SELECT command_id AS id, epoch, COUNT(*) OVER () AS total FROM {commands}
 WHERE status = 'PROCESSING' AND locked_until < :until ORDER BY seq LIMIT :limit;

-- name: check_late_commands
SELECT command_id AS id, COUNT(*) OVER () AS total FROM {commands}
 WHERE status IN ('PENDING', 'FAILED')
   AND CASE WHEN status = 'PENDING' THEN COALESCE(next_retry_at, created_at) ELSE next_retry_at END < :until
 ORDER BY seq LIMIT :limit;

-- name: check_expired_inbox
SELECT consumer_group, event_id AS id, epoch, COUNT(*) OVER () AS total FROM {inbox}
 WHERE status <> 1 AND status = 0 AND locked_until < :until ORDER BY consumer_group, event_id LIMIT :limit;

-- name: check_late_inbox
SELECT consumer_group, event_id AS id, COUNT(*) OVER () AS total FROM {inbox}
 WHERE status <> 1 AND status = 2 AND next_retry_at < :until ORDER BY consumer_group, event_id LIMIT :limit;

-- name: check_late_outbox
-- Parked ones wait for a person and are told by `status`; those behind them are late.
SELECT d.{delivery_event_id} AS id, COUNT(*) OVER () AS total
  FROM {delivery} d {join_facts}
 WHERE d.{state} NOT IN ('SENT', 'SKIPPED') AND d.{state} <> 'FAILED'
   AND COALESCE(d.{next_attempt_at}, {o}.{occurred_at}, {o}.{created_at}) < :until
 ORDER BY d.{shard}, d.{ordering_key}, d.{delivery_version} LIMIT :limit;

-- name: check_unsent_page
SELECT d.{delivery_event_id} AS event_id, {o}.{event_type} AS event_type, {o}.{topic} AS topic,
       {o}.{version} AS version, {o}.{occurred_at} AS occurred_at, {o}.{aggregate_type} AS aggregate_type,
       {o}.{aggregate_id} AS aggregate_id, {o}.{schema_version} AS schema_version, {o}.{content_type} AS content_type,
       {o}.{tenant_id} AS tenant_id, {o}.{correlation_id} AS correlation_id, {o}.{causation_id} AS causation_id,
       {o}.{attributes} AS attributes, {o}.{deliver_at} AS deliver_at, {payload_out} AS payload
  FROM {delivery} d {join_facts}
 WHERE d.{state} NOT IN ('SENT', 'SKIPPED') AND d.{delivery_event_id} > :after
 ORDER BY d.{delivery_event_id} LIMIT :limit;

-- name: repair_command
-- Only as it was found: whoever runs it meanwhile has the last word.
UPDATE {commands} SET status = 'PENDING', retry_count = 0, next_retry_at = NULL, finished_at = NULL
 WHERE command_id = :command_id AND status = 'COMPLETED';

-- name: repair_command_lease
-- By epoch: a holder that comes back has lost it, and its work is rolled back.
UPDATE {commands} SET status = 'PENDING', epoch = epoch + 1, locked_by = NULL, locked_until = NULL, started_at = NULL
 WHERE command_id = :command_id AND epoch = :epoch AND status = 'PROCESSING' AND locked_until < :until;

-- name: repair_inbox_lease
-- Due at once, and with its message, so that it does not depend on the broker's delivering it again.
UPDATE {inbox}
   SET status = 2, epoch = epoch + 1, locked_by = NULL, locked_until = NULL, next_retry_at = :now,
       waiting_key = ordering_key, message = COALESCE(message, :message)
 WHERE consumer_group = :group AND event_id = :event_id AND epoch = :epoch AND status = 0 AND locked_until < :until;

-- name: repair_missing_events
SELECT e.seq, e.event_id, e.event_type, e.aggregate_type, e.aggregate_id, e.aggregate_version, e.topic,
       e.schema_version, e.payload, e.content_type, e.tenant_id, e.correlation_id, e.causation_id, e.attributes,
       e.occurred_at, e.position
  FROM {domain_events} e
 WHERE e.aggregate_type = :aggregate_type AND e.aggregate_id = :aggregate_id AND e.occurred_at >= :since
   AND NOT EXISTS (SELECT 1 FROM {outbox} x WHERE x.{event_id} = {stored_id})
 ORDER BY e.aggregate_version;

-- name: repair_outbox_row
INSERT INTO {outbox} ({event_id}, {topic}, {event_type}, {aggregate_type}, {aggregate_id}, {version}, {schema_version},
  {payload}, {content_type}, {tenant_id}, {correlation_id}, {causation_id}, {attributes}, {occurred_at}, {deliver_at},
  {ordering_key}, {shard})
VALUES (:event_id, :topic, :event_type, :aggregate_type, :aggregate_id, :version, :schema_version,
  :payload, :content_type, :tenant_id, :correlation_id, :causation_id, :attributes, :occurred_at, :deliver_at,
  :ordering_key, :shard);

-- name: repair_outbox_fact
-- Where the delivery is kept apart; `repair_outbox_delivery` follows.
INSERT INTO {outbox} ({event_id}, {topic}, {event_type}, {aggregate_type}, {aggregate_id}, {version}, {schema_version},
  {payload}, {content_type}, {tenant_id}, {correlation_id}, {causation_id}, {attributes}, {occurred_at}, {deliver_at})
VALUES (:event_id, :topic, :event_type, :aggregate_type, :aggregate_id, :version, :schema_version,
  :payload, :content_type, :tenant_id, :correlation_id, :causation_id, :attributes, :occurred_at, :deliver_at);

-- name: repair_outbox_delivery
INSERT INTO {delivery} ({delivery_event_id}, {delivery_version}, {ordering_key}, {shard})
VALUES (:event_id, :version, :ordering_key, :shard);

-- name: ledger_ids
-- In the order in which they were sent. What was sent a moment ago may be on its way.
SELECT d.{delivery_event_id} AS event_id
  FROM {delivery} d {join_facts}
 WHERE d.{state} = 'SENT' AND d.{delivery_event_id} >= :low AND d.{delivery_event_id} < :high
   AND {o}.{topic} = :topic AND {o}.{event_type} = :event_type AND d.{published_at} < :until
   AND {o}.{deliver_at} IS NULL AND COALESCE({o}.{attributes}, '') NOT LIKE '%"copy_of"%'
 ORDER BY {o}.{version}, d.{published_at};

-- name: ledger_begun
SELECT consumer_group, event_type, first_seen FROM {handlers} ORDER BY consumer_group, event_type;

-- name: ledger_inbox_ids
SELECT i.event_id AS event_id FROM {inbox} i
 WHERE i.consumer_group = :group AND i.event_id >= :low AND i.event_id < :high
   AND i.topic = :topic AND i.event_type = :event_type
 ORDER BY i.event_id;
