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
SELECT consumer_group, status, COUNT(*) AS records, MAX(retry_count) AS highest_retry_count
  FROM {inbox}
 WHERE status <> 1
 GROUP BY consumer_group, status;

-- name: handler_known
SELECT event_type FROM {handlers} WHERE consumer_group = :group ORDER BY event_type;
