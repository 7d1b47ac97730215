"""What a session says no to. None of it would be mended by another try, so nothing here is retried.

CommandRefused
├── SessionNotFound      404
├── AlreadyStarted       409
├── OutOfOrder           409   the session is not where this command needs it to be
├── DraftReplaced        409   it is about an earlier round
└── SessionFinished      409
"""

from postroad.errors import AggregateNotFound, CommandRefused


class SessionNotFound(AggregateNotFound):
    def __init__(self, session_id: str) -> None:
        super().__init__(f"There is no session {session_id}. Start one, or check the id.")


class AlreadyStarted(CommandRefused):
    def __init__(self, session_id: str) -> None:
        super().__init__(f"Session {session_id} has been started before. Go on with it, or start another.")


class OutOfOrder(CommandRefused):
    def __init__(self, what: str, now: str) -> None:
        super().__init__(f"{what} cannot be done now: {now}. Look at the session again.")


class DraftReplaced(CommandRefused):
    def __init__(self, stage: str, given: int, now: int) -> None:
        super().__init__(
            f"This is about draft {given} of the {stage}, but draft {now} is the one in question. Answer it."
        )


class SessionFinished(CommandRefused):
    def __init__(self, session_id: str) -> None:
        super().__init__(f"Session {session_id} is finished, and nothing in it changes any more. Start another.")
