"""What a person asks of the read models: how they stand, whether they are right, and the parked gaps."""

import pytest
from sqlalchemy import Column, MetaData, String, Table, literal, select

from postroad import operations
from postroad.errors import OperationRefused
from postroad.eventstore import EventStoreSource
from postroad.projections import BrokerSource, OutboxSource
from tests.support.projections import GROUP, NAME, Catalog, Listed, deleted, saved, viewed


async def test_the_declared_projections_are_listed_with_their_state(videos: Catalog) -> None:
    (before,) = await operations.projections(videos.road)
    assert (before.name, before.table, before.group, before.state) == (NAME, NAME, GROUP, None)
    await operations.rebuild(videos.road, NAME, Listed([saved("a", 1)]), actor="somebody")
    (after,) = await operations.projections(videos.road)
    assert after.state is not None
    assert (after.state.generation, after.state.state, after.state.progress) == (1, "live", 1)
    (act,) = await operations.acts(videos.store)
    assert (act.actor, act.action, act.subject) == ("somebody", "projection.rebuild", NAME)


async def test_a_gap_is_shown_until_it_is_closed(videos: Catalog) -> None:
    source = Listed([saved("a", 1)])
    await videos.deliver(saved("a", 1))
    assert (await operations.verify(videos.road, NAME, source)).right
    await videos.deliver(viewed("a", 3))
    found = await operations.verify(videos.road, NAME, source)
    assert not found.differences
    assert not found.right
    (gap,) = found.gaps
    assert (gap.key, gap.version, gap.parked) == ("video/a", 3, False)
    assert "version 2 is missing before 3" in gap.error


async def test_a_projection_is_compared_with_a_query(videos: Catalog) -> None:
    await videos.deliver(saved("a", 1, "right"), saved("b", 1, "right"), saved("c", 1), deleted("c", 2))
    owner = Table("owner_video", MetaData(), Column("id", String(64), primary_key=True), Column("name", String(200)))
    async with videos.store.engine.begin() as connection:
        await connection.run_sync(owner.metadata.create_all)
        await connection.execute(owner.insert(), [{"id": "a", "name": "right"}, {"id": "b", "name": "right"}])
    query = select(owner.c.id.label("video_id"), owner.c.name.label("title"))
    assert (await operations.verify(videos.road, NAME, query)).right
    async with videos.store.engine.begin() as connection:
        await connection.execute(owner.delete().where(owner.c.id == "a"))
        await connection.execute(owner.update().values(name="other"))
        await connection.execute(owner.insert(), [{"id": "c", "name": "t"}, {"id": "d", "name": "t"}])
    found = (await operations.verify(videos.road, NAME, query)).differences
    assert found.keys == {"missing": ["c", "d"], "extra": ["a"], "differing": ["b"]}
    with pytest.raises(OperationRefused, match="no column 'video_id'"):
        await operations.verify(videos.road, NAME, select(literal(1).label("x")))


async def test_the_source_is_the_declared_one_else_the_broker(videos: Catalog) -> None:
    of = videos.videos
    assert isinstance(operations.projection_source(videos.road, of), BrokerSource)
    assert isinstance(operations.projection_source(videos.road, of, "outbox"), OutboxSource)
    assert isinstance(operations.projection_source(videos.road, of, "events"), EventStoreSource)
    of.source = Listed([])
    assert operations.projection_source(videos.road, of) is of.source
    assert isinstance(operations.projection_source(videos.road, of, "broker"), BrokerSource)
    with pytest.raises(OperationRefused, match=r"no projection 'videos'. Declared: video_search"):
        operations.projection(videos.road, "videos")
