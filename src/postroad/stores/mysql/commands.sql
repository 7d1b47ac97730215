-- name: command_submit
INSERT INTO {commands} (command_id, command_type, aggregate_type, aggregate_id, payload, tenant_id, user_id, correlation_id,
                        causation_id, status, created_at)
VALUES (:command_id, :command_type, :aggregate_type, :aggregate_id, :payload, :tenant_id, :user_id, :correlation_id,
        :causation_id, 'PENDING', :now);

-- name: command_begin
-- Submitted and taken in one, by whoever waits for it.
INSERT INTO {commands} (command_id, command_type, aggregate_type, aggregate_id, payload, tenant_id, user_id, correlation_id,
                        causation_id, status, created_at, epoch, locked_by, locked_until, started_at)
VALUES (:command_id, :command_type, :aggregate_type, :aggregate_id, :payload, :tenant_id, :user_id, :correlation_id,
        :causation_id, 'PROCESSING', :now, 1, :owner, UTC_TIMESTAMP(6) + INTERVAL ROUND(:seconds * 1000000) MICROSECOND, UTC_TIMESTAMP(6));

-- name: command_lock
SELECT seq, command_id, command_type, aggregate_type, aggregate_id, payload, tenant_id, user_id, correlation_id,
       causation_id, status, retry_count, next_retry_at, error_message, locked_by, locked_until, epoch, created_at,
       started_at, finished_at
  FROM {commands} WHERE command_id = :command_id
   FOR UPDATE;

-- name: command_take
-- Only as it was seen: whoever took, settled or renewed it meanwhile goes first.
UPDATE {commands}
   SET status = 'PROCESSING', epoch = epoch + 1, locked_by = :owner, locked_until = UTC_TIMESTAMP(6) + INTERVAL ROUND(:seconds * 1000000) MICROSECOND,
       next_retry_at = NULL, started_at = UTC_TIMESTAMP(6), finished_at = NULL
 WHERE command_id = :command_id AND epoch = :epoch AND status = :status
   AND (status <> 'PROCESSING' OR locked_until <= UTC_TIMESTAMP(6));

-- name: command_renew
UPDATE {commands}
   SET locked_until = UTC_TIMESTAMP(6) + INTERVAL ROUND(:seconds * 1000000) MICROSECOND
 WHERE command_id = :command_id AND epoch = :epoch AND status = 'PROCESSING';

-- name: command_complete
-- Settle by epoch, not by id: a holder that lost its lease must not undo its successor.
UPDATE {commands}
   SET status = 'COMPLETED', finished_at = UTC_TIMESTAMP(6), locked_by = NULL, locked_until = NULL, next_retry_at = NULL,
       error_message = NULL
 WHERE command_id = :command_id AND epoch = :epoch AND status = 'PROCESSING';

-- name: command_fail
UPDATE {commands}
   SET status = 'FAILED', finished_at = UTC_TIMESTAMP(6), locked_by = NULL, locked_until = NULL, retry_count = :retry_count,
       error_message = :error_message,
       next_retry_at = CASE WHEN :after IS NULL THEN NULL ELSE UTC_TIMESTAMP(6) + INTERVAL ROUND(:after * 1000000) MICROSECOND END
 WHERE command_id = :command_id AND epoch = :epoch AND status = 'PROCESSING';

-- name: command_release
-- Nobody's fault: no attempt is counted.
UPDATE {commands}
   SET status = 'PENDING', locked_by = NULL, locked_until = NULL, next_retry_at = UTC_TIMESTAMP(6) + INTERVAL ROUND(:after * 1000000) MICROSECOND, started_at = NULL
 WHERE command_id = :command_id AND epoch = :epoch AND status = 'PROCESSING';

-- name: command_due
-- Of each aggregate the first that is not finished, if its time has come. One that has failed for good holds nobody up.
-- The index is named, and each state asked for by itself: MariaDB would walk past all that is completed, for all of them
-- and again for those of each aggregate.
SELECT seq, command_id, command_type, aggregate_type, aggregate_id, payload, tenant_id, user_id, correlation_id,
       causation_id, status, retry_count, next_retry_at, error_message, locked_by, locked_until, epoch, created_at,
       started_at, finished_at
  FROM {commands} c FORCE INDEX (postroad_command_box_status)
 WHERE c.status <> 'COMPLETED' AND c.command_type IN (SELECT j.name FROM JSON_TABLE(:types, '$[*]' COLUMNS (name VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$')) j)
   AND ((c.status = 'PENDING' AND (c.next_retry_at IS NULL OR c.next_retry_at <= UTC_TIMESTAMP(6)))
        OR (c.status = 'FAILED' AND c.next_retry_at <= UTC_TIMESTAMP(6))
        OR (c.status = 'PROCESSING' AND c.locked_until <= UTC_TIMESTAMP(6)))
   AND NOT EXISTS (SELECT 1 FROM {commands} b WHERE b.aggregate_type = c.aggregate_type
                      AND b.aggregate_id = c.aggregate_id AND b.status = 'PENDING' AND b.seq < c.seq)
   AND NOT EXISTS (SELECT 1 FROM {commands} b WHERE b.aggregate_type = c.aggregate_type
                      AND b.aggregate_id = c.aggregate_id AND b.status = 'PROCESSING' AND b.seq < c.seq)
   AND NOT EXISTS (SELECT 1 FROM {commands} b WHERE b.aggregate_type = c.aggregate_type
                      AND b.aggregate_id = c.aggregate_id AND b.status = 'FAILED' AND b.seq < c.seq
                      AND b.next_retry_at IS NOT NULL)
 ORDER BY c.seq LIMIT :limit;
