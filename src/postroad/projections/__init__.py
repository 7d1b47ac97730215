"""Stage 7 of 7: read models. A table of the service's own, kept by a consumer group, that never steps back.

    videos = road.projection("video_search", table=video_search, group="catalog-reader", deleted="deleted")

    @videos.on(VideoCreated)                # the whole row: written if it is newer than the stored one
    def created(event):
        return {"title": event.title, "views": 0}

    @videos.on(VideoViewed, delta=True)     # a change: only upon the version right before it
    def viewed(event, row):
        return {"views": row["views"] + 1}

    @videos.on(VideoDeleted)                # keeps key and version, so that no older event brings it back
    def deleted(event):
        return DELETE

A row belongs to one aggregate: its key is the aggregate's id, its version the last event's. Rebuilding makes a second
table from a source of events, beside the one that serves, and swaps the two.
"""

from postroad.projections.backfill import Backfill
from postroad.projections.differences import Differences
from postroad.projections.projection import DELETE, Projection
from postroad.projections.rebuild import Rebuild, Rebuilt
from postroad.projections.sources import BrokerSource, OutboxSource, Source
from postroad.projections.state import Caretaker

__all__ = [
    "DELETE",
    "Backfill",
    "BrokerSource",
    "Caretaker",
    "Differences",
    "OutboxSource",
    "Projection",
    "Rebuild",
    "Rebuilt",
    "Source",
]
