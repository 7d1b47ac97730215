-- What is tried again or parked: few rows, counted however many others wait. None of those is ever written into it.
CREATE INDEX {held_index} ON {delivery} ({state}, {next_attempt_at}) WHERE {state} IN ('RETRY', 'FAILED');
