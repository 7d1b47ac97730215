"""What the catalog says no to. HTTP makes a problem document of it, gRPC a status.

Refusal
├── VideoNotFound      404   NOT_FOUND
└── VersionConflict    409   ABORTED
"""

from typing import ClassVar


class Refusal(Exception):
    status: ClassVar[int] = 400
    kind: ClassVar[str] = "refused"
    title: ClassVar[str] = "The catalog refuses"
    code: ClassVar[str] = "FAILED_PRECONDITION"


class VideoNotFound(Refusal):
    status, kind, title, code = 404, "video-not-found", "There is no such video", "NOT_FOUND"

    def __init__(self, video_id: str) -> None:
        super().__init__(f"There is no video {video_id}.")


class VersionConflict(Refusal):
    status, kind, title, code = 409, "version-conflict", "Somebody was faster", "ABORTED"

    def __init__(self, video_id: str, version: int, is_now: int) -> None:
        super().__init__(
            f"Video {video_id} is at version {is_now}, not {version}. Read it again, and decide anew what to change."
        )
