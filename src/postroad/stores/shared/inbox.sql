-- name: inbox_find
SELECT consumer_group, event_id, tenant_id, event_type, topic, ordering_key, version, status, locked_by,
       locked_until, epoch, next_retry_at, retry_count, error_msg, received_at, processed_at, message
  FROM {inbox}
 WHERE consumer_group = :group AND event_id = :event_id;

-- name: inbox_list
SELECT consumer_group, event_id, tenant_id, event_type, topic, ordering_key, version, status, locked_by,
       locked_until, epoch, next_retry_at, retry_count, error_msg, received_at, processed_at, message
  FROM {inbox}
 WHERE (:group = '' OR consumer_group = :group)
   AND (:status = -1 OR status = :status)
   AND (consumer_group > :after_group OR (consumer_group = :after_group AND event_id > :after_id))
 ORDER BY consumer_group, event_id
 LIMIT :limit;

-- name: inbox_counts
-- A failure with a time will be tried again; one that was processed all the same was answered with a "no".
SELECT consumer_group, COUNT(*) AS records, MAX(retry_count) AS highest_retry_count,
       CASE WHEN status = 0 THEN 'processing' WHEN next_retry_at IS NOT NULL THEN 'waiting'
            WHEN processed_at IS NOT NULL THEN 'refused' ELSE 'failed' END AS state
  FROM {inbox}
 WHERE status <> 1
 GROUP BY consumer_group,
       CASE WHEN status = 0 THEN 'processing' WHEN next_retry_at IS NOT NULL THEN 'waiting'
            WHEN processed_at IS NOT NULL THEN 'refused' ELSE 'failed' END;

-- name: inbox_kept
-- Whether something is begun or to be tried again whose message is here, and so with no broker.
SELECT 1 AS found FROM {inbox}
 WHERE consumer_group = :group AND status <> 1 AND message IS NOT NULL AND (status = 0 OR next_retry_at IS NOT NULL)
   AND received_at <= :written_by
 LIMIT 1;

-- name: inbox_stopped
-- Failed for good or answered with a "no": nothing more is done about them unless a person does it. In the order of
-- their index, or all that succeeded might be walked past.
SELECT consumer_group, event_id, tenant_id, event_type, topic, ordering_key, version, status, locked_by,
       locked_until, epoch, next_retry_at, retry_count, error_msg, received_at, processed_at, message
  FROM {inbox}
 WHERE status <> 1 AND status = 2 AND next_retry_at IS NULL
 ORDER BY consumer_group, next_retry_at, processed_at
 LIMIT :limit;

-- name: inbox_failures
-- The newest of those that failed (0), also if they will be tried again, or of those that were answered with a "no" (1).
SELECT i.consumer_group, i.event_id, i.tenant_id, i.event_type, i.topic, i.ordering_key, i.version, i.status, i.locked_by,
       i.locked_until, i.epoch, i.next_retry_at, i.retry_count, i.error_msg, i.received_at, i.processed_at, i.message
  FROM {inbox} i
 WHERE i.status <> 1 AND i.status = 2
   AND CASE WHEN i.next_retry_at IS NULL AND i.processed_at IS NOT NULL THEN 1 ELSE 0 END = :refused
 ORDER BY i.received_at DESC
 LIMIT :limit;

-- name: handler_known
SELECT event_type FROM {handlers} WHERE consumer_group = :group ORDER BY event_type;
