-- name: inbox_claim
-- Rows that are there already, and rows behind a waiting predecessor, are left out: the count tells.
INSERT INTO {inbox} (consumer_group, event_id, tenant_id, event_type, topic, ordering_key, version, status,
                     received_at, processed_at)
SELECT :group, m.value ->> 'event_id', m.value ->> 'tenant_id', m.value ->> 'event_type', m.value ->> 'topic',
       m.value ->> 'ordering_key', m.value ->> 'version', 1, postroad_now(), postroad_now()
  FROM json_each(:messages) m
 WHERE NOT EXISTS (SELECT 1 FROM {inbox} w WHERE w.consumer_group = :group
                      AND w.waiting_key = m.value ->> 'ordering_key' AND w.version < m.value ->> 'version')
ON CONFLICT (consumer_group, event_id) DO NOTHING;

-- name: inbox_succeeded
-- Of many at once. What has succeeded stays so: whoever is told so may rely on it.
SELECT event_id, event_type FROM {inbox}
 WHERE consumer_group = :group AND status = 1 AND event_id IN (SELECT value FROM json_each(:ids));

-- name: inbox_attempts
-- Of many at once, each by its key.
SELECT i.consumer_group, i.event_id, i.retry_count
  FROM json_each(:ids) j
  CROSS JOIN {inbox} i
    ON i.consumer_group = json_extract(:groups, '$[' || j.key || ']') AND i.event_id = j.value
 WHERE i.status = 2 AND i.next_retry_at IS NULL;

-- name: inbox_open
-- A record that nobody holds, unless there is one; `inbox_take` follows. Where no broker keeps the order of a key,
-- its later events wait from now on, and not only after a failure: whoever begins with it may die.
INSERT INTO {inbox} (consumer_group, event_id, tenant_id, event_type, topic, ordering_key, version, status,
                     received_at, locked_until, waiting_key, message)
VALUES (:group, :event_id, :tenant_id, :event_type, :topic, :ordering_key, :version, 0,
        postroad_now(), postroad_now(), CASE WHEN :kept THEN :ordering_key END, :message)
ON CONFLICT (consumer_group, event_id) DO NOTHING;

-- name: inbox_lock
SELECT consumer_group, event_id, tenant_id, event_type, topic, ordering_key, version, status, locked_by,
       locked_until, epoch, next_retry_at, retry_count, error_msg, received_at, processed_at, message,
       postroad_now() AS read_at,
       (SELECT MAX(COALESCE(w.next_retry_at, postroad_now())) FROM {inbox} w
         WHERE w.consumer_group = i.consumer_group AND w.waiting_key = i.ordering_key AND w.version < i.version
       ) AS blocked_until
  FROM {inbox} i
 WHERE consumer_group = :group AND event_id = :event_id;

-- name: inbox_take
-- waiting_key stays: until this attempt is over, later events of the key must wait.
UPDATE {inbox}
   SET status = 0, locked_by = :owner, locked_until = postroad_in(:seconds),
       epoch = epoch + 1, next_retry_at = NULL, processed_at = NULL
 WHERE consumer_group = :group AND event_id = :event_id;

-- name: inbox_renew
UPDATE {inbox}
   SET locked_until = postroad_in(:seconds)
 WHERE consumer_group = :group AND event_id = :event_id AND epoch = :epoch AND status = 0;

-- name: inbox_succeed
-- Settle by epoch, not by id: a holder that lost its lease must not undo its successor.
UPDATE {inbox}
   SET status = 1, processed_at = postroad_now(), locked_by = NULL, locked_until = NULL, next_retry_at = NULL,
       error_msg = NULL, waiting_key = NULL, message = NULL
 WHERE consumer_group = :group AND event_id = :event_id AND epoch = :epoch AND status = 0;

-- name: inbox_fail
UPDATE {inbox}
   SET status = 2, locked_by = NULL, locked_until = NULL, retry_count = :retry_count, error_msg = :error_msg,
       next_retry_at = CASE WHEN :after IS NULL THEN NULL
                       ELSE postroad_in(:after) END,
       waiting_key = CASE WHEN :after IS NULL THEN NULL ELSE ordering_key END,
       processed_at = CASE WHEN :settled THEN postroad_now() END,
       message = COALESCE(:message, message)
 WHERE consumer_group = :group AND event_id = :event_id AND epoch = :epoch AND status = 0;

-- name: inbox_fail_first
-- A failure without a lease: recorded unless somebody has a record of this event already.
INSERT INTO {inbox} (consumer_group, event_id, tenant_id, event_type, topic, ordering_key, version, status,
                     received_at, retry_count, error_msg, next_retry_at, waiting_key, processed_at, message)
VALUES (:group, :event_id, :tenant_id, :event_type, :topic, :ordering_key, :version, 2,
        postroad_now(), :retry_count, :error_msg,
        CASE WHEN :after IS NULL THEN NULL
                       ELSE postroad_in(:after) END,
        CASE WHEN :after IS NULL THEN NULL ELSE :ordering_key END,
        CASE WHEN :settled THEN postroad_now() END,
        :message)
ON CONFLICT (consumer_group, event_id) DO NOTHING;

-- name: inbox_due
-- Only what nobody else will deliver again: the message is here. A dead holder's lease counts as due.
-- What waits behind an event that is not due yet is left out: there may be more of it than is asked for.
SELECT consumer_group, event_id, tenant_id, event_type, topic, ordering_key, version, status, locked_by,
       locked_until, epoch, next_retry_at, retry_count, error_msg, received_at, processed_at, message
  FROM {inbox} i
 WHERE consumer_group = :group AND status <> 1 AND message IS NOT NULL
   AND ((status = 2 AND next_retry_at <= postroad_now()) OR (status = 0 AND locked_until <= postroad_now()))
   AND NOT EXISTS (
     SELECT 1 FROM {inbox} w
      WHERE w.consumer_group = i.consumer_group AND w.waiting_key = i.ordering_key AND w.version < i.version
        AND (w.next_retry_at > postroad_now() OR w.locked_until > postroad_now()))
 ORDER BY version, COALESCE(next_retry_at, locked_until)
 LIMIT :limit;

-- name: inbox_retry
-- waiting_key stays as it is: what has gone past a dead event need not wait for its return.
UPDATE {inbox}
   SET next_retry_at = postroad_now(), retry_count = 0, processed_at = NULL
 WHERE consumer_group = :group AND event_id = :event_id AND status = 2;

-- name: inbox_revive
-- The broker delivers it again: without its message, the record is no work for the scheduler too.
UPDATE {inbox}
   SET next_retry_at = postroad_now(), retry_count = 0, processed_at = NULL, message = NULL
 WHERE consumer_group = :group AND event_id = :event_id AND status = 2;

-- name: inbox_discard
-- Settled by a person with a "no"; later events of the key may go on.
UPDATE {inbox}
   SET next_retry_at = NULL, processed_at = postroad_now(), waiting_key = NULL
 WHERE consumer_group = :group AND event_id = :event_id AND status = 2;

-- name: inbox_prune
DELETE FROM {inbox}
 WHERE rowid IN (SELECT rowid FROM {inbox}
                  WHERE status = 1 AND processed_at < postroad_in(-:older_than)
                  ORDER BY processed_at LIMIT :limit);

-- name: handler_declare
INSERT INTO {handlers} (consumer_group, event_type, first_seen, last_seen)
VALUES (:group, :event_type, postroad_now(), postroad_now())
ON CONFLICT (consumer_group, event_type) DO UPDATE SET last_seen = EXCLUDED.last_seen;

-- name: inbox_give_up
-- No attempt is possible. Whoever has taken, renewed or settled it since it was read can do more.
UPDATE {inbox}
   SET status = 2, locked_by = NULL, locked_until = NULL, next_retry_at = NULL, waiting_key = NULL, error_msg = :error_msg
 WHERE consumer_group = :group AND event_id = :event_id AND epoch = :epoch
   AND (status = 2 OR (status = 0 AND locked_until <= postroad_now()));
