"""Stage 1 of 7: write. The event's row joins the caller's transaction; nothing is sent from here.

`Outbox.add` is all there is to it. It never commits: the business rows and the event become visible together,
or neither does.
"""

from postroad.outbox.outbox import Added, Outbox

__all__ = ["Added", "Outbox"]
