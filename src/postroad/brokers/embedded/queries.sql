-- CROSS JOIN fixes the order of a join and INDEXED BY the index: there are no statistics to choose by, and the
-- wrong choice walks through the whole backlog or the whole history.

-- Publishing ----------------------------------------------------------------------------------------------------

-- name: topic_ids
SELECT name, id FROM topic WHERE name IN (SELECT value FROM json_each(:names));

-- name: last_message
SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'message';

-- name: add_message
INSERT INTO message (topic, key, published_at, since, size, attributes, data) VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: deliver_new
-- Ready is what has no key, or is the first of its key in this batch and finds nothing of its key unsettled.
INSERT INTO delivery (subscription, message, key, since, due, ready_at)
SELECT s.id, m.id, m.key, m.since, m.since,
       CASE WHEN m.key = ''
              OR m.id = min(m.id) OVER (PARTITION BY s.id, m.key)
                 AND NOT EXISTS (SELECT 1 FROM delivery d INDEXED BY delivery_lane
                                 WHERE d.subscription = s.id AND d.key = m.key AND d.key <> '')
            THEN m.since END
FROM message m CROSS JOIN subscription s ON s.topic = m.topic
WHERE m.id > :last;

-- Handing out ---------------------------------------------------------------------------------------------------

-- name: subscription
SELECT s.id, s.topic, s.name, t.name, s.ack_deadline, s.retention, s.max_attempts
FROM subscription s JOIN topic t ON t.id = s.topic WHERE s.name = :name;

-- name: register
INSERT INTO receiver (subscription, expires_at) VALUES (:subscription, :expires_at) RETURNING id;

-- name: extend
UPDATE receiver
SET expires_at = :now + (SELECT CAST(s.ack_deadline * 1000000 AS INTEGER) FROM subscription s
                         WHERE s.id = receiver.subscription)
WHERE id = :receiver;

-- name: expired
SELECT id FROM receiver WHERE subscription = :subscription AND expires_at <= :now AND id <> :receiver;

-- name: next
SELECT (SELECT min(ready_at) FROM delivery WHERE subscription = :subscription AND ready_at > :after),
       (SELECT min(expires_at) FROM receiver WHERE subscription = :subscription AND id <> :receiver);

-- name: heads
-- A key of which another receiver still holds something must wait for that receiver: two never share a key.
SELECT d.message, d.key, m.size
FROM delivery d INDEXED BY delivery_ready CROSS JOIN message m ON m.id = d.message
WHERE d.subscription = :subscription AND d.ready_at <= :now
  AND (d.key = '' OR NOT EXISTS (SELECT 1 FROM receiver r
                                 CROSS JOIN delivery h INDEXED BY delivery_held
                                   ON h.holder = r.id AND h.key = d.key
                                 WHERE r.subscription = :subscription AND r.id <> :receiver))
ORDER BY d.ready_at, d.message
LIMIT :room;

-- name: followers
SELECT d.message, d.key, m.size, d.holder IS NULL AND d.due <= :now AS takeable
FROM delivery d INDEXED BY delivery_lane CROSS JOIN message m ON m.id = d.message
WHERE d.subscription = :subscription AND d.key = :key AND d.key <> '' AND d.message > :head
ORDER BY d.message
LIMIT :room;

-- name: hold
UPDATE delivery SET holder = ?, ready_at = NULL, attempt = attempt + 1 WHERE subscription = ? AND message = ?;

-- name: contents
SELECT d.message, d.key, d.attempt, m.size, m.attributes, m.data
FROM json_each(:messages) chosen
CROSS JOIN delivery d ON d.subscription = :subscription AND d.message = chosen.value
CROSS JOIN message m ON m.id = d.message
ORDER BY chosen.key;

-- Settling ------------------------------------------------------------------------------------------------------
-- Settle by lease, not by id alone: a receiver that lost its lease must not undo its successor's work.

-- name: ack
DELETE FROM delivery WHERE subscription = ? AND message = ? AND holder = ? AND attempt = ?;

-- name: give_back
UPDATE delivery SET holder = NULL, due = :due, ready_at = CASE key WHEN '' THEN :due END
WHERE subscription = :subscription AND message = :message AND holder = :holder AND attempt = :attempt;

-- name: exhausted
SELECT 1 FROM subscription WHERE id = :subscription AND max_attempts > 0 AND max_attempts <= :attempt;

-- name: bury
INSERT INTO dead_letter (topic, subscription, message, reason, attempts, died_at)
SELECT s.topic, d.subscription, d.message, :reason, d.attempt, :now
FROM delivery d JOIN subscription s ON s.id = d.subscription
WHERE d.subscription = :subscription AND d.message = :message AND d.holder = :holder AND d.attempt = :attempt;

-- name: promote
-- The first of the key becomes ready, unless somebody has it.
UPDATE delivery SET ready_at = due
WHERE subscription = :subscription
  AND message = (SELECT min(message) FROM delivery INDEXED BY delivery_lane
                 WHERE subscription = :subscription AND key = :key AND key <> '')
  AND holder IS NULL AND ready_at IS NULL;

-- name: demote
-- Before something is put in front of a key: its first is no longer ready.
UPDATE delivery SET ready_at = NULL
WHERE subscription = :subscription
  AND message = (SELECT min(message) FROM delivery INDEXED BY delivery_lane
                 WHERE subscription = :subscription AND key = :key AND key <> '');

-- name: held
SELECT subscription, message, key, attempt FROM delivery WHERE holder = :holder;

-- name: release
-- A receiver that closes gives back what it never handled, so that the delivery does not count.
UPDATE delivery
SET holder = NULL, ready_at = CASE key WHEN '' THEN due END, attempt = attempt - :uncounted
WHERE holder = :holder;

-- name: forget_receiver
DELETE FROM receiver WHERE id = :holder;

-- Replaying -----------------------------------------------------------------------------------------------------

-- name: demote_all
UPDATE delivery SET ready_at = NULL WHERE subscription = :subscription AND key <> '' AND ready_at IS NOT NULL;

-- name: promote_all
UPDATE delivery SET ready_at = due
WHERE subscription = :subscription AND key <> '' AND holder IS NULL
  AND message = (SELECT min(d.message) FROM delivery d INDEXED BY delivery_lane
                 WHERE d.subscription = :subscription AND d.key = delivery.key AND d.key <> '');

-- name: reopen_since
INSERT OR IGNORE INTO delivery (subscription, message, key, since, due, ready_at)
SELECT :subscription, id, key, since, since, CASE key WHEN '' THEN since END
FROM message WHERE topic = :topic AND published_at >= :since;

-- name: reopen_snapshot
INSERT OR IGNORE INTO delivery (subscription, message, key, since, due, ready_at)
SELECT :subscription, id, key, since, since, CASE key WHEN '' THEN since END
FROM message
WHERE +topic = :topic AND id > :position OR id IN (SELECT value FROM json_each(:unsettled));

-- name: take_snapshot
INSERT OR REPLACE INTO snapshot (subscription, name, position, unsettled)
SELECT :subscription, :name, :position, json_group_array(message)
FROM delivery WHERE subscription = :subscription;

-- name: snapshots
SELECT name, position, unsettled FROM snapshot WHERE subscription = :subscription;

-- name: dead_letters
SELECT l.id, t.name AS topic, s.name AS subscription, l.reason, l.attempts, l.died_at, m.attributes, m.data
FROM dead_letter l
JOIN topic t ON t.id = l.topic JOIN subscription s ON s.id = l.subscription JOIN message m ON m.id = l.message
WHERE t.name = :topic AND l.id > :after
ORDER BY l.id
LIMIT :limit;

-- name: dead_letter_count
SELECT count(*) FROM (SELECT 1 FROM dead_letter WHERE topic = (SELECT id FROM topic WHERE name = :topic) LIMIT 10000);

-- name: exhume
DELETE FROM dead_letter
WHERE topic = (SELECT id FROM topic WHERE name = :topic) AND id IN (SELECT value FROM json_each(:ids))
RETURNING subscription, message;

-- name: reopen_message
INSERT OR IGNORE INTO delivery (subscription, message, key, since, due, ready_at)
SELECT :subscription, id, key, since, :now, CASE key WHEN '' THEN :now END FROM message WHERE id = :message;

-- name: key_of
SELECT key FROM message WHERE id = :message;

-- Looking after it ----------------------------------------------------------------------------------------------

-- name: depth
SELECT count(*), count(*) FILTER (WHERE since > :now), min(since) FILTER (WHERE since <= :now) FROM delivery
WHERE subscription = :subscription;

-- name: estimate
-- No more than so many are looked at, from the first on: it is asked every few seconds, however long the backlog.
SELECT count(*), count(*) FILTER (WHERE since > :now), min(since) FILTER (WHERE since <= :now)
FROM (SELECT since FROM delivery WHERE subscription = :subscription ORDER BY message LIMIT 10000);

-- name: shortest_retention
SELECT CAST(min(retention) * 1000000 AS INTEGER) FROM subscription;

-- name: purge_window
SELECT id, published_at FROM message WHERE id > :position ORDER BY id LIMIT :size;

-- name: purge
-- Never what somebody has not settled: not for any age, nor while the topic has no subscription at all.
DELETE FROM message
WHERE id > :position AND id <= :last
  AND published_at < :now - (SELECT max(retention) * 1000000 FROM subscription s WHERE s.topic = message.topic)
  AND NOT EXISTS (SELECT 1 FROM subscription s
                  CROSS JOIN delivery d ON d.subscription = s.id AND d.message = message.id
                  WHERE s.topic = message.topic)
  AND NOT EXISTS (SELECT 1 FROM dead_letter l WHERE l.message = message.id);

-- Topology ------------------------------------------------------------------------------------------------------

-- name: topics
SELECT name FROM topic ORDER BY name;

-- name: subscriptions
SELECT s.name, t.name, s.ack_deadline, s.retention, s.max_attempts
FROM subscription s JOIN topic t ON t.id = s.topic ORDER BY s.name;

-- name: create_topic
INSERT INTO topic (name) VALUES (:name);

-- name: has_subscription
SELECT 1 FROM subscription s JOIN topic t ON t.id = s.topic WHERE t.name = :topic LIMIT 1;

-- name: create_subscription
INSERT INTO subscription (name, topic, ack_deadline, retention, max_attempts)
VALUES (:name, (SELECT id FROM topic WHERE name = :topic), :ack_deadline, :retention, :max_attempts);

-- name: update_subscription
UPDATE subscription SET ack_deadline = :ack_deadline, retention = :retention, max_attempts = :max_attempts
WHERE name = :name;

-- name: drop_deliveries
DELETE FROM delivery WHERE subscription = :subscription;

-- name: drop_receivers
DELETE FROM receiver WHERE subscription = :subscription;

-- name: drop_dead_letters
DELETE FROM dead_letter WHERE subscription = :subscription;

-- name: drop_snapshots
DELETE FROM snapshot WHERE subscription = :subscription;

-- name: drop_subscription
DELETE FROM subscription WHERE id = :subscription;
