-- name: canaries
-- Few: those that were sent are removed after an hour.
SELECT d.{delivery_event_id} AS event_id, d.{state} AS state, d.{published_at} AS published_at
  FROM {delivery} d {join_facts}
 WHERE {o}.{aggregate_type} = :aggregate_type AND {o}.{aggregate_id} = :aggregate_id
 LIMIT 1000;

-- name: canary_topics
SELECT DISTINCT {o}.{aggregate_id} AS topic FROM {delivery} d {join_facts} WHERE {o}.{aggregate_type} = :aggregate_type;

-- name: topics_sent
-- Of the latest events: whoever writes much to one topic and little to another has both among them now and then.
SELECT DISTINCT latest.topic AS topic
  FROM (SELECT {o}.{topic} AS topic FROM {delivery} d {join_facts}
         WHERE d.{state} = 'SENT'
         ORDER BY d.{published_at} DESC LIMIT :most) latest;

-- name: inbox_failed_count
-- No more than so many of each are looked at: those that failed for good are kept, and may have become many. So are
-- those that were refused, which are not looked at.
SELECT state, COUNT(*) AS records, MAX(retry_count) AS highest_retry_count
  FROM (SELECT * FROM (
          SELECT 'waiting' AS state, retry_count FROM {inbox}
           WHERE status <> 1 AND status = 2 AND consumer_group = :group AND next_retry_at IS NOT NULL
           ORDER BY next_retry_at LIMIT :most) waiting
        UNION ALL
        SELECT * FROM (
          SELECT 'failed' AS state, retry_count FROM {inbox}
           WHERE status <> 1 AND status = 2 AND consumer_group = :group AND next_retry_at IS NULL
             AND processed_at IS NULL LIMIT :most) failed) looked_at
 GROUP BY state;

-- name: command_counts
-- No more than so many of each are looked at: those that failed are kept, and may have become many.
SELECT status, COUNT(*) AS commands
  FROM (SELECT status FROM (SELECT status FROM {commands} WHERE status = 'PENDING' LIMIT :most) pending
        UNION ALL SELECT status FROM (SELECT status FROM {commands} WHERE status = 'PROCESSING' LIMIT :most) processing
        UNION ALL SELECT status FROM (SELECT status FROM {commands} WHERE status = 'FAILED' LIMIT :most) failed) looked_at
 GROUP BY status;

-- name: commands_recent
SELECT command_type, status, retry_count, started_at, finished_at FROM {commands}
 WHERE status IN ('COMPLETED', 'FAILED') ORDER BY seq DESC LIMIT :most;
