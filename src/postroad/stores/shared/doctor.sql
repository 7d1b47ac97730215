-- name: unsent_types
-- Of the first so many, in the order of their index: a long backlog is not walked to its end.
SELECT DISTINCT unsent.event_type AS event_type
  FROM (SELECT {o}.{event_type} AS event_type FROM {delivery} d {join_facts}
         WHERE {is_unsent}
         ORDER BY d.{unsent_shard}, d.{ordering_key}, d.{delivery_version} LIMIT :most) unsent;

-- name: inbox_unsettled_types
SELECT DISTINCT unsettled.consumer_group AS consumer_group, unsettled.event_type AS event_type
  FROM (SELECT i.consumer_group, i.event_type FROM {inbox} i
         WHERE i.status <> 1 AND (i.status = 0 OR i.next_retry_at IS NOT NULL) LIMIT :most) unsettled;
