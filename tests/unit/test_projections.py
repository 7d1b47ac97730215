"""What can be declared as a read model, and what is refused, with the reason."""

import json
import uuid
from typing import Any

import pytest
from sqlalchemy import Boolean, Column, Integer, MetaData, String, Table, UniqueConstraint, Uuid

from postroad import Postroad
from postroad.cli.output import as_json
from postroad.errors import ConfigurationError, InvalidName, PoisonError
from postroad.operations.layout import layout
from postroad.projections import DELETE, Differences
from tests.support.projections import GROUP, NAME, VideoDeleted, VideoSaved, deleted, make_table, message, saved


def refused(match: str, *columns: Any, **options: Any) -> None:
    road = Postroad("catalog", "sqlite:///never.db", "embedded:")
    with pytest.raises(ConfigurationError, match=match):
        road.projection("videos", Table("videos", MetaData(), *columns), group=GROUP, **options)


def test_a_table_that_cannot_be_a_projection_is_refused_with_the_reason() -> None:
    refused("there is no column 'version'", Column("id", String(9), primary_key=True))
    columns = (Column("id", String(9), primary_key=True), Column("title", String(9)), Column("version", Integer))
    refused("primary key is not title alone", *columns, key="title")
    refused("neither text, integer nor UUID", Column("id", Boolean, primary_key=True), Column("version", Integer))
    refused("the database would number its key", Column("id", Integer, primary_key=True), Column("version", Integer))
    refused("something beside the key is unique", Column("id", String(9), primary_key=True),
            Column("version", Integer), Column("slug", String(9)), UniqueConstraint("slug"))  # fmt: skip
    refused("there is no column 'gone'", Column("id", String(9), primary_key=True), Column("version", Integer),
            deleted="gone")  # fmt: skip


def test_a_name_that_fits_no_subscription_is_refused() -> None:
    road = Postroad("catalog", "sqlite:///never.db", "embedded:")
    for name in ("Videos", "", "v" * 48, "a__b"):
        with pytest.raises(InvalidName, match="must be made of lower-case letters"):
            road.projection(name, make_table(), group=GROUP)
    road.projection("videos", make_table(), group=GROUP)
    with pytest.raises(ConfigurationError, match="two projections 'videos'"):
        road.projection("videos", make_table(), group=GROUP)


def test_functions_that_do_more_than_compute_are_refused() -> None:
    videos = Postroad("catalog", "sqlite:///never.db", "embedded:").projection(NAME, make_table(), group=GROUP)

    async def waits(event: VideoSaved) -> dict[str, Any]:
        return {}

    with pytest.raises(ConfigurationError, match="waits is async"):
        videos.on(VideoSaved)(waits)
    with pytest.raises(ConfigurationError, match="asks for 'session'"):
        videos.on(VideoSaved)(lambda event, session: {})
    with pytest.raises(ConfigurationError, match="asks for 'row'"):
        videos.on(VideoSaved)(lambda event, row: {})


def test_what_a_function_returns_is_checked() -> None:
    videos = Postroad("catalog", "sqlite:///never.db", "embedded:").projection(NAME, make_table(), group=GROUP)
    answers: list[Any] = [None, {"titel": "t"}, {"version": 3}, {"video_id": "b"}, {"video_id": "a", "title": "t"}]
    videos.on(VideoSaved)(lambda event: answers.pop(0))
    event = VideoSaved("a", "t")
    one = message(event, 1)
    for told in ("returned NoneType", "returned titel", "returned version", "returned 'b' as video_id"):
        with pytest.raises(ConfigurationError, match=told):
            videos.row(event, one)
    assert videos.row(event, one).values == {"title": "t"}


def test_a_row_can_only_be_deleted_where_something_says_so() -> None:
    road = Postroad("catalog", "sqlite:///never.db", "embedded:")
    videos = road.projection(NAME, make_table(), group=GROUP)
    videos.on(VideoDeleted)(lambda event: DELETE)
    with pytest.raises(ConfigurationError, match="Add a Boolean column and name it"):
        videos.row(VideoDeleted("a"), deleted("a", 1))


def test_a_key_is_the_aggregates_id_in_the_columns_type() -> None:
    road = Postroad("catalog", "sqlite:///never.db", "embedded:")
    columns = (Column("id", Uuid, primary_key=True), Column("version", Integer))
    videos = road.projection("by_uuid", Table("by_uuid", MetaData(), *columns), group=GROUP)
    id = uuid.uuid4()
    assert videos.key_of(saved(str(id), 1)) == id
    with pytest.raises(PoisonError, match="does not fit the key column id"):
        videos.key_of(saved("no-uuid", 1))


def test_differences_tell_themselves_as_json() -> None:
    assert json.loads(as_json(Differences(rows=3, missing=1, keys={"missing": ["a"]})))["missing"] == 1


async def test_it_goes_by_its_own_name_and_not_by_that_of_our_function() -> None:
    road = Postroad("catalog", "sqlite://", "embedded:")
    videos = road.projection(NAME, make_table(), group=GROUP)
    videos.on(VideoSaved)(lambda event: {"title": event.title})
    (reaction,) = (await layout(road)).reactions
    assert reaction.handler == f"read model {NAME}"
    with pytest.raises(ConfigurationError, match=f"two handlers in group '{GROUP}': read model {NAME} and "):
        road.on(VideoSaved, group=GROUP)(lambda event: None)
    await road.aclose()
