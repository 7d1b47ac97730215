-- name: command_find
SELECT seq, command_id, command_type, aggregate_type, aggregate_id, payload, tenant_id, user_id, correlation_id,
       causation_id, status, retry_count, next_retry_at, error_message, locked_by, locked_until, epoch, created_at,
       started_at, finished_at
  FROM {commands} WHERE command_id = :command_id;

-- name: command_list
-- Newest first.
SELECT seq, command_id, command_type, aggregate_type, aggregate_id, payload, tenant_id, user_id, correlation_id,
       causation_id, status, retry_count, next_retry_at, error_message, locked_by, locked_until, epoch, created_at,
       started_at, finished_at
  FROM {commands}
 WHERE (:type = '' OR command_type = :type) AND seq < :before
 ORDER BY seq DESC LIMIT :limit;

-- name: command_list_of
-- A statement of its own, so that the few that failed are found by their index among the millions that did not.
SELECT seq, command_id, command_type, aggregate_type, aggregate_id, payload, tenant_id, user_id, correlation_id,
       causation_id, status, retry_count, next_retry_at, error_message, locked_by, locked_until, epoch, created_at,
       started_at, finished_at
  FROM {commands}
 WHERE status = :status AND (:type = '' OR command_type = :type) AND seq < :before
 ORDER BY seq DESC LIMIT :limit;

-- name: command_retry
-- By a person: with all its attempts before it, and in its old place among the commands of its aggregate.
UPDATE {commands} SET status = 'PENDING', retry_count = 0, next_retry_at = NULL
 WHERE command_id = :command_id AND status = 'FAILED';

-- name: command_unfinished
-- One that has failed for good waits for a person.
SELECT 1 AS found FROM {commands}
 WHERE (status IN ('PENDING', 'PROCESSING') OR (status = 'FAILED' AND next_retry_at IS NOT NULL)) LIMIT 1;
