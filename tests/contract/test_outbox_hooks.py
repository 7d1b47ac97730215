"""A hook of the session may add: its event and the rows that are being written commit together, or neither does."""

from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import Engine, create_engine, event
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from postroad.errors import VersionConflict, WriteRefused
from postroad.testing.office import Office, Posted
from tests.contract.test_outbox_transactions import ASYNC_DRIVERS, SYNC_DRIVERS

SESSION_HOOKS = ("before_flush", "after_flush", "after_flush_postexec", "before_commit")
MAPPER_HOOKS = ("before_insert", "after_insert")


class Base(DeclarativeBase):
    pass


class Parcel(Base):
    __tablename__ = "parcel"

    id: Mapped[int] = mapped_column(primary_key=True)


@pytest.fixture
def engine(store_kind: str, store_url: str) -> Iterator[Engine]:
    engine = create_engine(f"{SYNC_DRIVERS[store_kind]}:{store_url.partition(':')[2]}")
    Base.metadata.create_all(engine)
    yield engine
    Base.metadata.drop_all(engine)
    engine.dispose()


@pytest.fixture
def hook(request: pytest.FixtureRequest) -> Iterator[Callable[[Session, Callable[[], object]], None]]:
    """Has the parametrised hook call a function once."""
    name: str = request.param
    listening: list[tuple[object, Callable[..., None]]] = []

    def listen(session: Session, call: Callable[[], object]) -> None:
        left = [call]

        def listener(*_: object) -> None:
            if left:
                left.pop()()

        target = Parcel if name in MAPPER_HOOKS else session
        event.listen(target, name, listener)
        listening.append((target, listener))

    yield listen
    for target, listener in listening:
        event.remove(target, name, listener)


in_each_hook = pytest.mark.parametrize("hook", SESSION_HOOKS + MAPPER_HOOKS, indirect=True)


async def found(office: Office) -> tuple[list[str], int]:
    (parcels,) = (await office.query("SELECT count(*) AS parcels FROM parcel"))[0]
    return [row.ordering_key for row in await office.rows()], parcels


@in_each_hook
async def test_an_event_of_a_hook_commits_with_the_rows_or_not_at_all(
    office: Office, engine: Engine, hook: Callable[[Session, Callable[[], object]], None]
) -> None:
    with Session(engine) as session:
        session.begin()
        session.add(Parcel(id=1))
        office.outbox.add(session, Posted("added"))
        hook(session, lambda: office.outbox.add(session, Posted("hook")))
        session.commit()
    assert await found(office) == (["parcel/added", "parcel/hook"], 1)

    def fails(_: object) -> None:
        raise ConnectionError

    with Session(engine) as session:
        session.begin()
        session.add(Parcel(id=2))
        hook(session, lambda: office.outbox.add(session, Posted("again")))
        event.listen(engine, "commit", fails)
        with pytest.raises(ConnectionError):
            session.commit()
        event.remove(engine, "commit", fails)
        session.rollback()
        session.commit()
    assert await found(office) == (["parcel/added", "parcel/hook"], 1)


@in_each_hook
async def test_an_event_of_an_async_sessions_hook_commits_with_the_rows(
    office: Office,
    engine: Engine,
    store_kind: str,
    store_url: str,
    hook: Callable[[Session, Callable[[], object]], None],
) -> None:
    async_engine = create_async_engine(f"{ASYNC_DRIVERS[store_kind]}:{store_url.partition(':')[2]}")
    async with AsyncSession(async_engine) as session, session.begin():
        session.add(Parcel(id=1))
        hook(session.sync_session, lambda: office.outbox.add(session, Posted("hook")))
    await async_engine.dispose()
    assert await found(office) == (["parcel/hook"], 1)


@pytest.mark.parametrize("hook", ["before_flush", "after_insert"], indirect=True)
async def test_a_hook_that_swallows_its_events_refusal_commits_nothing(
    office: Office, engine: Engine, hook: Callable[[Session, Callable[[], object]], None]
) -> None:
    await office.post("taken")

    def swallowed() -> None:
        with pytest.raises(VersionConflict):
            office.outbox.add(session, Posted("taken"), version=1)

    with Session(engine) as session:
        session.begin()
        session.add(Parcel(id=1))
        hook(session, swallowed)
        # PostgreSQL has ended the transaction in its own words.
        with pytest.raises(Exception if engine.name == "postgresql" else WriteRefused):
            session.commit()
        session.rollback()
    assert await found(office) == (["parcel/taken"], 0)
