-- name: command_submit
INSERT INTO {commands} (command_id, command_type, aggregate_type, aggregate_id, payload, tenant_id, user_id, correlation_id,
                        causation_id, status, created_at)
VALUES (:command_id, :command_type, :aggregate_type, :aggregate_id, :payload, :tenant_id, :user_id, :correlation_id,
        :causation_id, 'PENDING', :now)
ON CONFLICT (command_id) DO NOTHING;

-- name: command_begin
-- Submitted and taken in one, by whoever waits for it. It does not wait for the disk: the commit of the command's own
-- transaction does so for both, and a server that dies in between takes with it only what nobody was told of.
INSERT INTO {commands} (command_id, command_type, aggregate_type, aggregate_id, payload, tenant_id, user_id, correlation_id,
                        causation_id, status, created_at, epoch, locked_by, locked_until, started_at)
SELECT CAST(:command_id AS uuid), :command_type, :aggregate_type, :aggregate_id, :payload, :tenant_id, :user_id,
       :correlation_id, :causation_id, 'PROCESSING', CAST(:now AS timestamptz), 1, :owner,
       clock_timestamp() + make_interval(secs => CAST(:seconds AS double precision)), clock_timestamp()
  FROM set_config('synchronous_commit', 'off', true)
ON CONFLICT (command_id) DO NOTHING;

-- name: command_lock
SELECT seq, command_id, command_type, aggregate_type, aggregate_id, payload, tenant_id, user_id, correlation_id,
       causation_id, status, retry_count, next_retry_at, error_message, locked_by, locked_until, epoch, created_at,
       started_at, finished_at
  FROM {commands} WHERE command_id = :command_id
   FOR UPDATE;

-- name: command_take
-- Only as it was seen: whoever took, settled or renewed it meanwhile goes first.
UPDATE {commands}
   SET status = 'PROCESSING', epoch = epoch + 1, locked_by = :owner, locked_until = clock_timestamp() + make_interval(secs => CAST(:seconds AS double precision)),
       next_retry_at = NULL, started_at = clock_timestamp(), finished_at = NULL
 WHERE command_id = :command_id AND epoch = :epoch AND status = :status
   AND (status <> 'PROCESSING' OR locked_until <= clock_timestamp());

-- name: command_renew
UPDATE {commands}
   SET locked_until = clock_timestamp() + make_interval(secs => CAST(:seconds AS double precision))
 WHERE command_id = :command_id AND epoch = :epoch AND status = 'PROCESSING';

-- name: command_complete
-- Settle by epoch, not by id: a holder that lost its lease must not undo its successor.
UPDATE {commands}
   SET status = 'COMPLETED', finished_at = clock_timestamp(), locked_by = NULL, locked_until = NULL, next_retry_at = NULL,
       error_message = NULL
 WHERE command_id = :command_id AND epoch = :epoch AND status = 'PROCESSING';

-- name: command_fail
UPDATE {commands}
   SET status = 'FAILED', finished_at = clock_timestamp(), locked_by = NULL, locked_until = NULL, retry_count = :retry_count,
       error_message = :error_message,
       next_retry_at = CASE WHEN CAST(:after AS double precision) IS NULL THEN NULL ELSE clock_timestamp() + make_interval(secs => CAST(:after AS double precision)) END
 WHERE command_id = :command_id AND epoch = :epoch AND status = 'PROCESSING';

-- name: command_release
-- Nobody's fault: no attempt is counted.
UPDATE {commands}
   SET status = 'PENDING', locked_by = NULL, locked_until = NULL, next_retry_at = clock_timestamp() + make_interval(secs => CAST(:after AS double precision)), started_at = NULL
 WHERE command_id = :command_id AND epoch = :epoch AND status = 'PROCESSING';

-- name: command_due
-- Of each aggregate the first that is not finished, if its time has come. One that has failed for good holds nobody up.
SELECT seq, command_id, command_type, aggregate_type, aggregate_id, payload, tenant_id, user_id, correlation_id,
       causation_id, status, retry_count, next_retry_at, error_message, locked_by, locked_until, epoch, created_at,
       started_at, finished_at
  FROM {commands} c
 WHERE c.status <> 'COMPLETED' AND c.command_type = ANY(CAST(:types AS text[]))
   AND ((c.status = 'PENDING' AND (c.next_retry_at IS NULL OR c.next_retry_at <= now()))
        OR (c.status = 'FAILED' AND c.next_retry_at <= now())
        OR (c.status = 'PROCESSING' AND c.locked_until <= now()))
   AND NOT EXISTS (SELECT 1 FROM {commands} b
                    WHERE b.status <> 'COMPLETED' AND b.aggregate_type = c.aggregate_type
                      AND b.aggregate_id = c.aggregate_id AND b.seq < c.seq
                      AND (b.status <> 'FAILED' OR b.next_retry_at IS NOT NULL))
 ORDER BY c.seq LIMIT :limit;
