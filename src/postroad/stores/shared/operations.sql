-- name: outbox_sent_edge
-- How far back a search goes at once. Which of those that were sent at the same moment is the same to it.
SELECT d.{published_at} AS published_at, d.{delivery_event_id} AS event_id
  FROM {delivery} d
 WHERE d.{state} = 'SENT' AND d.{published_at} <= :at
   AND (d.{published_at} < :at OR d.{delivery_event_id} < :before)
   AND d.{published_at} >= :since
 ORDER BY d.{published_at} DESC
 LIMIT 1 OFFSET :window;

-- name: outbox_find
SELECT d.{delivery_event_id} AS event_id, {o}.{event_type} AS event_type, {o}.{topic} AS topic,
       d.{ordering_key} AS ordering_key, {o}.{version} AS version, d.{state} AS state, d.{attempts} AS attempts,
       d.{next_attempt_at} AS next_attempt_at, d.{last_error} AS last_error, {o}.{occurred_at} AS occurred_at,
       d.{published_at} AS published_at, {o}.{aggregate_type} AS aggregate_type, {o}.{aggregate_id} AS aggregate_id,
       d.{shard} AS shard, {o}.{schema_version} AS schema_version, {o}.{content_type} AS content_type,
       {o}.{tenant_id} AS tenant_id, {o}.{correlation_id} AS correlation_id, {o}.{causation_id} AS causation_id,
       {o}.{attributes} AS attributes, {o}.{created_at} AS created_at, {o}.{deliver_at} AS deliver_at,
       {payload_out} AS payload
  FROM {delivery} d {join_facts}
 WHERE d.{delivery_event_id} = :event_id;

-- name: outbox_retryable_ids
-- By id: each page goes on where the last one ended, and what is tried again meanwhile is missed by none.
SELECT d.{delivery_event_id} AS event_id
  FROM {delivery} d {join_facts}
 WHERE d.{state} IN ('RETRY', 'FAILED') AND d.{state} = :state AND d.{delivery_event_id} > :after
   AND ({o}.{occurred_at} IS NOT NULL OR :timeless = 1)
   AND ({o}.{occurred_at} IS NULL OR ({o}.{occurred_at} >= :since AND {o}.{occurred_at} < :until))
   AND (:event_type = '' OR {o}.{event_type} = :event_type)
   AND (:key = '' OR {o}.{aggregate_id} = :key
        OR ({o}.{aggregate_type} = :aggregate_type AND {o}.{aggregate_id} = :aggregate_id))
   AND (:text = '' OR {matches})
 ORDER BY d.{delivery_event_id}
 LIMIT :limit;

-- name: outbox_retryable_count
SELECT COUNT(*) AS events
  FROM {delivery} d {join_facts}
 WHERE d.{state} IN ('RETRY', 'FAILED') AND d.{state} = :state
   AND ({o}.{occurred_at} IS NOT NULL OR :timeless = 1)
   AND ({o}.{occurred_at} IS NULL OR ({o}.{occurred_at} >= :since AND {o}.{occurred_at} < :until))
   AND (:event_type = '' OR {o}.{event_type} = :event_type)
   AND (:key = '' OR {o}.{aggregate_id} = :key
        OR ({o}.{aggregate_type} = :aggregate_type AND {o}.{aggregate_id} = :aggregate_id))
   AND (:text = '' OR {matches});

-- name: outbox_topics
SELECT DISTINCT topic
  FROM (SELECT {o}.{topic} AS topic FROM {delivery} d {join_facts}
         ORDER BY d.{delivery_event_id} DESC LIMIT :newest) last;

-- name: outbox_state
SELECT d.{state} AS state FROM {delivery} d WHERE d.{delivery_event_id} = :event_id;

-- name: outbox_retry
-- The error stays to be read until the event is sent.
UPDATE {delivery} SET {state} = 'NEW', {attempts} = 0, {next_attempt_at} = NULL
 WHERE {delivery_event_id} = :event_id AND {state} IN ('FAILED', 'RETRY');

-- name: outbox_counts
-- Only what is unsent; the sent are too many to be counted. A delayed event that is not due yet keeps nobody waiting.
SELECT state, COUNT(*) AS events, MIN(due) AS oldest
  FROM (SELECT CASE WHEN d.{state} = 'NEW' AND {o}.{deliver_at} > :now THEN 'SCHEDULED' ELSE d.{state} END AS state,
               COALESCE({o}.{deliver_at}, {o}.{occurred_at}) AS due
          FROM {delivery} d {join_facts}
         WHERE d.{state} NOT IN ('SENT', 'SKIPPED')) unsent
 GROUP BY state;

-- name: outbox_written
-- Ids begin with the time at which they were made, so a span of time is a range of the primary key.
SELECT d.{delivery_event_id} AS event_id, {o}.{event_type} AS event_type, {o}.{topic} AS topic,
       d.{ordering_key} AS ordering_key, {o}.{version} AS version, d.{state} AS state, d.{attempts} AS attempts,
       d.{next_attempt_at} AS next_attempt_at, d.{last_error} AS last_error, {o}.{occurred_at} AS occurred_at,
       d.{published_at} AS published_at, {o}.{aggregate_type} AS aggregate_type, {o}.{aggregate_id} AS aggregate_id,
       {o}.{deliver_at} AS deliver_at
  FROM {delivery} d {join_facts}
 WHERE d.{delivery_event_id} > :low AND d.{delivery_event_id} < :high
 ORDER BY d.{delivery_event_id}
 LIMIT :limit;

-- name: groups_known
SELECT DISTINCT consumer_group FROM {handlers} ORDER BY consumer_group;

-- name: audit_add
INSERT INTO {audit} (at, actor, action, subject, detail) VALUES (:now, :actor, :action, :subject, :detail);

-- name: audit_list
SELECT id, at, actor, action, subject, detail FROM {audit}
 WHERE id < :before AND (:subject = '' OR subject = :subject)
 ORDER BY id DESC LIMIT :limit;

-- name: aggregate_history
SELECT d.{delivery_event_id} AS event_id, {o}.{event_type} AS event_type, {o}.{topic} AS topic,
       d.{ordering_key} AS ordering_key, {o}.{version} AS version, d.{state} AS state, d.{attempts} AS attempts,
       d.{next_attempt_at} AS next_attempt_at, d.{last_error} AS last_error, {o}.{occurred_at} AS occurred_at,
       d.{published_at} AS published_at, {o}.{aggregate_type} AS aggregate_type, {o}.{aggregate_id} AS aggregate_id,
       {o}.{deliver_at} AS deliver_at
  FROM {delivery} d {join_facts}
 WHERE {o}.{aggregate_type} = :aggregate_type AND {o}.{aggregate_id} = :aggregate_id AND {o}.{version} < :before
 ORDER BY {o}.{version} DESC
 LIMIT :limit;

-- name: outbox_delayed
-- Whatever its state: the broker may hold it already.
SELECT d.{delivery_event_id} AS event_id, {o}.{event_type} AS event_type, {o}.{topic} AS topic,
       d.{ordering_key} AS ordering_key, {o}.{version} AS version, d.{state} AS state, d.{attempts} AS attempts,
       d.{next_attempt_at} AS next_attempt_at, d.{last_error} AS last_error, {o}.{occurred_at} AS occurred_at,
       d.{published_at} AS published_at, {o}.{aggregate_type} AS aggregate_type, {o}.{aggregate_id} AS aggregate_id,
       {o}.{deliver_at} AS deliver_at
  FROM {delivery} d {join_facts}
 WHERE {o}.{deliver_at} >= :at AND ({o}.{deliver_at} > :at OR d.{delivery_event_id} > :after)
   AND d.{state} <> 'SKIPPED'
 ORDER BY {o}.{deliver_at}, d.{delivery_event_id}
 LIMIT :limit;

-- name: outbox_due_now
UPDATE {outbox} SET {deliver_at} = :now WHERE {event_id} = :event_id AND {deliver_at} > :now;

-- name: outbox_send_again
-- Only for a delayed event: it stands outside every order, and the broker's copy is a duplicate to the inbox.
UPDATE {delivery} SET {state} = 'NEW', {attempts} = 0, {next_attempt_at} = NULL, {published_at} = NULL
 WHERE {delivery_event_id} = :event_id AND {state} = 'SENT';

-- name: leases_held
SELECT outbox, owner, token, COUNT(*) AS shards, MIN(expires_at) AS expires_at FROM {shards}
 WHERE token IS NOT NULL
 GROUP BY outbox, owner, token
 ORDER BY outbox, owner;

-- name: inbox_reopen
-- What succeeded is to be handled once more; `inbox_retry` makes it due. It holds nobody up.
UPDATE {inbox} SET status = 2, message = :message
 WHERE consumer_group = :group AND event_id = :event_id AND status = 1;

-- name: result_last
SELECT at, actor, found FROM {results} WHERE kind = :kind;
