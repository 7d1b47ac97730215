-- name: outbox_sent
-- What was sent last comes first, straight from the index.
SELECT d.{delivery_event_id} AS event_id, {o}.{event_type} AS event_type, {o}.{topic} AS topic,
       d.{ordering_key} AS ordering_key, {o}.{version} AS version, d.{state} AS state, d.{attempts} AS attempts,
       d.{next_attempt_at} AS next_attempt_at, d.{last_error} AS last_error, {o}.{occurred_at} AS occurred_at,
       d.{published_at} AS published_at, {o}.{aggregate_type} AS aggregate_type, {o}.{aggregate_id} AS aggregate_id,
       {o}.{deliver_at} AS deliver_at
  FROM {delivery} d {join_facts}
 WHERE d.{state} = 'SENT' AND d.{published_at} <= :at
   AND (d.{published_at} < :at OR d.{delivery_event_id} < :before)
   AND d.{published_at} >= :since
   AND (:event_type = '' OR {o}.{event_type} = :event_type)
   AND (:key = '' OR {o}.{aggregate_id} = :key
        OR ({o}.{aggregate_type} = :aggregate_type AND {o}.{aggregate_id} = :aggregate_id))
   AND (:text = '' OR {matches})
 ORDER BY d.{published_at} DESC, d.{delivery_event_id} DESC
 LIMIT :limit;

-- name: outbox_skipped
SELECT d.{delivery_event_id} AS event_id, {o}.{event_type} AS event_type, {o}.{topic} AS topic,
       d.{ordering_key} AS ordering_key, {o}.{version} AS version, d.{state} AS state, d.{attempts} AS attempts,
       d.{next_attempt_at} AS next_attempt_at, d.{last_error} AS last_error, {o}.{occurred_at} AS occurred_at,
       d.{published_at} AS published_at, {o}.{aggregate_type} AS aggregate_type, {o}.{aggregate_id} AS aggregate_id,
       {o}.{deliver_at} AS deliver_at
  FROM {delivery} d {join_facts}
 WHERE d.{state} = 'SKIPPED' AND d.{published_at} <= :at
   AND (d.{published_at} < :at OR d.{delivery_event_id} < :before)
   AND d.{published_at} >= :since
   AND (:event_type = '' OR {o}.{event_type} = :event_type)
   AND (:key = '' OR {o}.{aggregate_id} = :key
        OR ({o}.{aggregate_type} = :aggregate_type AND {o}.{aggregate_id} = :aggregate_id))
   AND (:text = '' OR {matches})
 ORDER BY d.{published_at} DESC, d.{delivery_event_id} DESC
 LIMIT :limit;

-- name: outbox_unsent
-- What happened last comes first; other programs' rows may have no time yet.
-- The index is named, because the planner would otherwise walk the primary key past all that is sent.
SELECT d.{delivery_event_id} AS event_id, {o}.{event_type} AS event_type, {o}.{topic} AS topic,
       d.{ordering_key} AS ordering_key, {o}.{version} AS version, d.{state} AS state, d.{attempts} AS attempts,
       d.{next_attempt_at} AS next_attempt_at, d.{last_error} AS last_error, {o}.{occurred_at} AS occurred_at,
       d.{published_at} AS published_at, {o}.{aggregate_type} AS aggregate_type, {o}.{aggregate_id} AS aggregate_id,
       {o}.{deliver_at} AS deliver_at
  FROM {delivery} d INDEXED BY {unsent_index} {join_facts}
 WHERE d.{state} NOT IN ('SENT', 'SKIPPED') AND d.{state} = :state
   AND (COALESCE({o}.{occurred_at}, '9999-12-31T00:00:00.000000Z') < :at OR (COALESCE({o}.{occurred_at}, '9999-12-31T00:00:00.000000Z') = :at AND d.{delivery_event_id} < :before))
   AND COALESCE({o}.{occurred_at}, '9999-12-31T00:00:00.000000Z') >= :since
   AND (:event_type = '' OR {o}.{event_type} = :event_type)
   AND (:key = '' OR {o}.{aggregate_id} = :key
        OR ({o}.{aggregate_type} = :aggregate_type AND {o}.{aggregate_id} = :aggregate_id))
   AND (:text = '' OR {matches})
 ORDER BY COALESCE({o}.{occurred_at}, '9999-12-31T00:00:00.000000Z') DESC, d.{delivery_event_id} DESC
 LIMIT :limit;

-- name: outbox_unsent_many
-- The same, for when most of the table may be unsent: read as it lies, it is faster than through an index.
SELECT d.{delivery_event_id} AS event_id, {o}.{event_type} AS event_type, {o}.{topic} AS topic,
       d.{ordering_key} AS ordering_key, {o}.{version} AS version, d.{state} AS state, d.{attempts} AS attempts,
       d.{next_attempt_at} AS next_attempt_at, d.{last_error} AS last_error, {o}.{occurred_at} AS occurred_at,
       d.{published_at} AS published_at, {o}.{aggregate_type} AS aggregate_type, {o}.{aggregate_id} AS aggregate_id,
       {o}.{deliver_at} AS deliver_at
  FROM {delivery} d NOT INDEXED {join_facts}
 WHERE d.{state} NOT IN ('SENT', 'SKIPPED') AND (:state = '' OR d.{state} = :state)
   AND (COALESCE({o}.{occurred_at}, '9999-12-31T00:00:00.000000Z') < :at OR (COALESCE({o}.{occurred_at}, '9999-12-31T00:00:00.000000Z') = :at AND d.{delivery_event_id} < :before))
   AND COALESCE({o}.{occurred_at}, '9999-12-31T00:00:00.000000Z') >= :since
   AND (:event_type = '' OR {o}.{event_type} = :event_type)
   AND (:key = '' OR {o}.{aggregate_id} = :key
        OR ({o}.{aggregate_type} = :aggregate_type AND {o}.{aggregate_id} = :aggregate_id))
   AND (:text = '' OR {matches})
 ORDER BY COALESCE({o}.{occurred_at}, '9999-12-31T00:00:00.000000Z') DESC, d.{delivery_event_id} DESC
 LIMIT :limit;

-- name: outbox_unsent_newest
-- The same for all of them or the new ones, without anything else that narrows, for when the facts lie in the same table:
-- as many as it returns are read, in the order of their index.
SELECT d.{delivery_event_id} AS event_id, {o}.{event_type} AS event_type, {o}.{topic} AS topic,
       d.{ordering_key} AS ordering_key, {o}.{version} AS version, d.{state} AS state, d.{attempts} AS attempts,
       d.{next_attempt_at} AS next_attempt_at, d.{last_error} AS last_error, {o}.{occurred_at} AS occurred_at,
       d.{published_at} AS published_at, {o}.{aggregate_type} AS aggregate_type, {o}.{aggregate_id} AS aggregate_id,
       {o}.{deliver_at} AS deliver_at
  FROM {delivery} d {join_facts}
 WHERE d.{state} NOT IN ('SENT', 'SKIPPED') AND (:state = '' OR d.{state} NOT IN ('RETRY', 'FAILED'))
   AND COALESCE({o}.{occurred_at}, '9999-12-31T00:00:00.000000Z') <= :at
   AND (COALESCE({o}.{occurred_at}, '9999-12-31T00:00:00.000000Z') < :at OR d.{delivery_event_id} < :before)
   AND COALESCE({o}.{occurred_at}, '9999-12-31T00:00:00.000000Z') >= :since
 ORDER BY COALESCE({o}.{occurred_at}, '9999-12-31T00:00:00.000000Z') DESC, d.{delivery_event_id} DESC
 LIMIT :limit;

-- name: outbox_parked
SELECT d.{delivery_event_id} AS event_id, {o}.{event_type} AS event_type, d.{ordering_key} AS ordering_key,
       d.{attempts} AS attempts, d.{last_error} AS last_error,
       (SELECT COUNT(*) FROM {delivery} b
         WHERE b.{shard} = d.{shard} AND b.{ordering_key} = d.{ordering_key}
           AND b.{state} NOT IN ('SENT', 'SKIPPED') AND b.{delivery_version} > d.{delivery_version}) AS behind
  FROM {delivery} d {join_facts}
 WHERE d.{state} NOT IN ('SENT', 'SKIPPED') AND d.{state} = 'FAILED'
 ORDER BY d.{shard}, d.{ordering_key}
 LIMIT :limit;

-- name: outbox_sent_count
SELECT COUNT(*) AS events
  FROM (SELECT 1 FROM {delivery} d
         WHERE d.{state} = 'SENT' AND d.{published_at} > postroad_in(-:seconds)
         LIMIT :most) recent;

-- name: outbox_sent_since
SELECT d.{delivery_event_id} AS event_id, {o}.{event_type} AS event_type, {o}.{topic} AS topic,
       d.{ordering_key} AS ordering_key, {o}.{version} AS version, d.{state} AS state, d.{attempts} AS attempts,
       d.{next_attempt_at} AS next_attempt_at, d.{last_error} AS last_error, {o}.{occurred_at} AS occurred_at,
       d.{published_at} AS published_at, {o}.{aggregate_type} AS aggregate_type, {o}.{aggregate_id} AS aggregate_id,
       {o}.{deliver_at} AS deliver_at
  FROM {delivery} d {join_facts}
 WHERE d.{state} = 'SENT' AND d.{published_at} > postroad_in(-:seconds)
 ORDER BY d.{published_at}
 LIMIT :limit;

-- name: shards_free
SELECT COUNT(*) AS shards FROM {shards}
 WHERE outbox = :outbox_name AND (token IS NULL OR expires_at <= postroad_now());

-- name: outbox_skip
-- Not SENT, because it was not; but the relay passes it, and its key goes on. From now on it is old, like what was sent.
UPDATE {delivery} SET {state} = 'SKIPPED', {next_attempt_at} = NULL, {published_at} = postroad_now()
 WHERE {delivery_event_id} = :event_id AND {state} IN ('FAILED', 'RETRY');

-- name: result_keep
INSERT INTO {results} (kind, at, actor, found) VALUES (:kind, :now, :actor, :found)
ON CONFLICT (kind) DO UPDATE SET at = excluded.at, actor = excluded.actor, found = excluded.found;
