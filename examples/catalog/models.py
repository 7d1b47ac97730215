"""What goes over HTTP."""

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field

Status = Literal["draft", "published", "archived"]
Progress = Literal["pending", "processing", "ready", "failed"]


def _storable(text: str) -> str:
    if "\0" in text:
        raise ValueError("contains a NUL, which no database stores")
    return text


Title = Annotated[str, Field(min_length=1, max_length=200, examples=["Rain on a tin roof"]), AfterValidator(_storable)]
Description = Annotated[str, Field(max_length=5_000, examples=["Ten hours of it."]), AfterValidator(_storable)]
Duration = Annotated[int, Field(gt=0, lt=2**63, examples=[36_000_000_000], description="In microseconds.")]
Version = Annotated[int, Field(ge=1, lt=2**62, examples=[1], description="The one that you have seen.")]


class NewVideo(BaseModel):
    model_config = ConfigDict(extra="forbid")
    uploader_id: Annotated[UUID, Field(examples=["d6a8b0c1-4567-49ab-8ef0-123456789012"])]
    title: Title
    description: Description | None = None
    duration_micros: Duration | None = None
    published_at: AwareDatetime | None = None
    status: Status = "draft"
    media_status: Progress = "pending"
    analysis_status: Progress = "pending"


class Changes(BaseModel):
    """What is not given stays as it is."""

    model_config = ConfigDict(extra="forbid")
    version: Version
    title: Title = ""
    description: Description = ""
    duration_micros: Duration = 0
    status: Status = "draft"
    media_status: Progress = "pending"
    analysis_status: Progress = "pending"


class Video(BaseModel):
    model_config = ConfigDict(from_attributes=True)
    video_id: Annotated[str, Field(examples=["a3d5e6f7-1234-4678-9abc-def012345678"])]
    uploader_id: Annotated[str, Field(examples=["d6a8b0c1-4567-49ab-8ef0-123456789012"])]
    title: Title
    description: str | None
    duration_micros: int | None
    published_at: datetime | None
    status: Annotated[str, Field(examples=["published"])]
    media_status: Annotated[str, Field(examples=["ready"])]
    analysis_status: Annotated[str, Field(examples=["ready"])]
    updated_at: datetime
    version: Annotated[int, Field(examples=[3])]


class Sent(BaseModel):
    """An event on its way."""

    event_id: str
    type: Annotated[str, Field(examples=["video.updated"])]
    video_id: str
    version: int
    state: Annotated[str, Field(examples=["SENT"])]
    occurred_at: datetime
