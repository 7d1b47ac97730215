-- name: inbox_claim
-- Rows behind a waiting predecessor are left out: the count tells. A row that is there already is an error, because
-- the driver counts an unchanged duplicate like an inserted row, and INSERT IGNORE would hide other errors too.
INSERT INTO {inbox} (consumer_group, event_id, tenant_id, event_type, topic, ordering_key, version, status,
                     received_at, processed_at)
SELECT :group, UNHEX(REPLACE(m.event_id, '-', '')), m.tenant_id, m.event_type, m.topic, m.ordering_key, m.version, 1,
       UTC_TIMESTAMP(6), UTC_TIMESTAMP(6)
  FROM JSON_TABLE(:messages, '$[*]' COLUMNS (
         event_id CHAR(36) PATH '$.event_id', tenant_id VARCHAR(255) PATH '$.tenant_id',
         event_type VARCHAR(128) PATH '$.event_type', topic VARCHAR(255) PATH '$.topic',
         ordering_key VARCHAR(520) PATH '$.ordering_key', version BIGINT PATH '$.version')) AS m
 WHERE NOT EXISTS (SELECT 1 FROM {inbox} w WHERE w.consumer_group = :group
                      AND w.waiting_key = m.ordering_key COLLATE utf8mb4_bin AND w.version < m.version);

-- name: inbox_succeeded
-- Of many at once. What has succeeded stays so: whoever is told so may rely on it.
-- In this order, or the server may read the whole group for it.
SELECT r.event_id, r.event_type
  FROM JSON_TABLE(:ids, '$[*]' COLUMNS (id CHAR(32) PATH '$')) i
  STRAIGHT_JOIN {inbox} r ON r.consumer_group = :group AND r.event_id = UNHEX(i.id)
 WHERE r.status = 1;

-- name: inbox_attempts
-- Of many at once, each by its key. In this order, or the server may read the whole table for it.
SELECT r.consumer_group, r.event_id, r.retry_count
  FROM JSON_TABLE(:groups, '$[*]' COLUMNS (n FOR ORDINALITY, consumer_group VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$')) g
  STRAIGHT_JOIN JSON_TABLE(:ids, '$[*]' COLUMNS (n FOR ORDINALITY, id CHAR(32) PATH '$')) i ON i.n = g.n
  STRAIGHT_JOIN {inbox} r ON r.consumer_group = g.consumer_group AND r.event_id = UNHEX(i.id)
 WHERE r.status = 2 AND r.next_retry_at IS NULL;

-- name: inbox_open
-- A record that nobody holds, unless there is one; `inbox_take` follows. Where no broker keeps the order of a key,
-- its later events wait from now on, and not only after a failure: whoever begins with it may die.
INSERT INTO {inbox} (consumer_group, event_id, tenant_id, event_type, topic, ordering_key, version, status,
                     received_at, locked_until, waiting_key, message)
VALUES (:group, :event_id, :tenant_id, :event_type, :topic, :ordering_key, :version, 0,
        UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), CASE WHEN :kept THEN :ordering_key END, :message)
ON DUPLICATE KEY UPDATE event_id = event_id;

-- name: inbox_lock
SELECT consumer_group, event_id, tenant_id, event_type, topic, ordering_key, version, status, locked_by,
       locked_until, epoch, next_retry_at, retry_count, error_msg, received_at, processed_at, message,
       UTC_TIMESTAMP(6) AS read_at,
       (SELECT MAX(COALESCE(w.next_retry_at, UTC_TIMESTAMP(6))) FROM {inbox} w
         WHERE w.consumer_group = i.consumer_group AND w.waiting_key = i.ordering_key AND w.version < i.version
       ) AS blocked_until
  FROM {inbox} i
 WHERE consumer_group = :group AND event_id = :event_id
   FOR UPDATE;

-- name: inbox_take
-- waiting_key stays: until this attempt is over, later events of the key must wait.
UPDATE {inbox}
   SET status = 0, locked_by = :owner, locked_until = UTC_TIMESTAMP(6) + INTERVAL ROUND(:seconds * 1000000) MICROSECOND,
       epoch = epoch + 1, next_retry_at = NULL, processed_at = NULL
 WHERE consumer_group = :group AND event_id = :event_id;

-- name: inbox_renew
UPDATE {inbox}
   SET locked_until = UTC_TIMESTAMP(6) + INTERVAL ROUND(:seconds * 1000000) MICROSECOND
 WHERE consumer_group = :group AND event_id = :event_id AND epoch = :epoch AND status = 0;

-- name: inbox_succeed
-- Settle by epoch, not by id: a holder that lost its lease must not undo its successor.
UPDATE {inbox}
   SET status = 1, processed_at = UTC_TIMESTAMP(6), locked_by = NULL, locked_until = NULL, next_retry_at = NULL,
       error_msg = NULL, waiting_key = NULL, message = NULL
 WHERE consumer_group = :group AND event_id = :event_id AND epoch = :epoch AND status = 0;

-- name: inbox_fail
UPDATE {inbox}
   SET status = 2, locked_by = NULL, locked_until = NULL, retry_count = :retry_count, error_msg = :error_msg,
       next_retry_at = CASE WHEN :after IS NULL THEN NULL
                       ELSE UTC_TIMESTAMP(6) + INTERVAL ROUND(:after * 1000000) MICROSECOND END,
       waiting_key = CASE WHEN :after IS NULL THEN NULL ELSE ordering_key END,
       processed_at = CASE WHEN :settled THEN UTC_TIMESTAMP(6) END,
       message = COALESCE(:message, message)
 WHERE consumer_group = :group AND event_id = :event_id AND epoch = :epoch AND status = 0;

-- name: inbox_fail_first
-- A failure without a lease. A record that is there already is an error, as in `inbox_claim`.
INSERT INTO {inbox} (consumer_group, event_id, tenant_id, event_type, topic, ordering_key, version, status,
                     received_at, retry_count, error_msg, next_retry_at, waiting_key, processed_at, message)
VALUES (:group, :event_id, :tenant_id, :event_type, :topic, :ordering_key, :version, 2,
        UTC_TIMESTAMP(6), :retry_count, :error_msg,
        CASE WHEN :after IS NULL THEN NULL
                       ELSE UTC_TIMESTAMP(6) + INTERVAL ROUND(:after * 1000000) MICROSECOND END,
        CASE WHEN :after IS NULL THEN NULL ELSE :ordering_key END,
        CASE WHEN :settled THEN UTC_TIMESTAMP(6) END,
        :message);

-- name: inbox_due
-- Only what nobody else will deliver again: the message is here. A dead holder's lease counts as due.
-- What waits behind an event that is not due yet is left out: there may be more of it than is asked for.
SELECT consumer_group, event_id, tenant_id, event_type, topic, ordering_key, version, status, locked_by,
       locked_until, epoch, next_retry_at, retry_count, error_msg, received_at, processed_at, message
  FROM {inbox} i
 WHERE consumer_group = :group AND status <> 1 AND message IS NOT NULL
   AND ((status = 2 AND next_retry_at <= UTC_TIMESTAMP(6)) OR (status = 0 AND locked_until <= UTC_TIMESTAMP(6)))
   AND NOT EXISTS (
     SELECT 1 FROM {inbox} w
      WHERE w.consumer_group = i.consumer_group AND w.waiting_key = i.ordering_key AND w.version < i.version
        AND (w.next_retry_at > UTC_TIMESTAMP(6) OR w.locked_until > UTC_TIMESTAMP(6)))
 ORDER BY version, COALESCE(next_retry_at, locked_until)
 LIMIT :limit;

-- name: inbox_retry
-- waiting_key stays as it is: what has gone past a dead event need not wait for its return.
UPDATE {inbox}
   SET next_retry_at = UTC_TIMESTAMP(6), retry_count = 0, processed_at = NULL
 WHERE consumer_group = :group AND event_id = :event_id AND status = 2;

-- name: inbox_revive
-- The broker delivers it again: without its message, the record is no work for the scheduler too.
UPDATE {inbox}
   SET next_retry_at = UTC_TIMESTAMP(6), retry_count = 0, processed_at = NULL, message = NULL
 WHERE consumer_group = :group AND event_id = :event_id AND status = 2;

-- name: inbox_discard
-- Settled by a person with a "no"; later events of the key may go on.
UPDATE {inbox}
   SET next_retry_at = NULL, processed_at = UTC_TIMESTAMP(6), waiting_key = NULL
 WHERE consumer_group = :group AND event_id = :event_id AND status = 2;

-- name: inbox_prune
DELETE FROM {inbox}
 WHERE status = 1 AND processed_at < UTC_TIMESTAMP(6) - INTERVAL ROUND(:older_than * 1000000) MICROSECOND
 ORDER BY processed_at LIMIT :limit;

-- name: handler_declare
INSERT INTO {handlers} (consumer_group, event_type, first_seen, last_seen)
VALUES (:group, :event_type, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))
ON DUPLICATE KEY UPDATE last_seen = UTC_TIMESTAMP(6);

-- name: inbox_give_up
-- No attempt is possible. Whoever has taken, renewed or settled it since it was read can do more.
UPDATE {inbox}
   SET status = 2, locked_by = NULL, locked_until = NULL, next_retry_at = NULL, waiting_key = NULL, error_msg = :error_msg
 WHERE consumer_group = :group AND event_id = :event_id AND epoch = :epoch
   AND (status = 2 OR (status = 0 AND locked_until <= UTC_TIMESTAMP(6)));
