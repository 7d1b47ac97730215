-- What waits, by the time at which it happened, for its newest page and its oldest event. Events enter it at one end and
-- leave it at the other. Other programs' rows may have no time yet.
CREATE INDEX {age_index} ON {delivery} (COALESCE({occurred_at}, CAST('9999-12-31 00:00:00+00' AS timestamptz)), {event_id}) WHERE {state} NOT IN ('SENT', 'SKIPPED');
