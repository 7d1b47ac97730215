"""What a service tells of its commands."""

import pytest

from postroad import Postroad
from postroad.errors import PermissionDenied
from postroad.telemetry.reading import read_gauges
from tests.contract.commands.test_worker import Try, make_due, submitted, trying
from tests.support.genesis import StartSession


@pytest.mark.spec("G10")
async def test_gauges_tell_how_the_command_box_stands_and_how_the_last_commands_went(road: Postroad) -> None:
    async def fail_at_first(command: Try) -> object:
        calls[command.step] = calls.get(command.step, 0) + 1
        if command.step == 1 or calls[command.step] == 1:
            raise RuntimeError("not now")
        return []

    calls: dict[int, int] = {}
    trying(road, fail_at_first)
    await submitted(road, Try("a", 1), Try("b", 2))
    for _ in range(2):
        while await road.command_worker.run_once():
            pass
        await make_due(road)
    await road.execute(StartSession("s-1", "a title"))
    await submitted(road, Try("c", 3))

    gauges, troubles = await read_gauges(road)
    assert list(troubles) == []
    told = {name: gauges.value(name) for name in ("pending_commands", "processing_commands", "failed_commands")}
    assert told == {"pending_commands": 1, "processing_commands": 0, "failed_commands": 1}
    assert dict(gauges.values("commands_by_type")) == {
        ("Command.Genesis.Session.Try",): 2,
        ("Command.Genesis.Session.Start",): 1,
    }
    assert gauges.value("retry_rate") == pytest.approx(2 / 3)
    average = gauges.value("avg_processing_time")
    assert average is not None
    assert average >= 0


@pytest.mark.spec("G10")
async def test_commands_that_fail_at_once_and_for_good_count_as_failures(road: Postroad) -> None:
    async def refuse(command: Try) -> object:
        raise PermissionDenied("nobody may")

    trying(road, refuse)
    for step in (1, 2):
        with pytest.raises(PermissionDenied):
            await road.execute(Try("a", step))
    gauges, _ = await read_gauges(road)
    assert gauges.value("retry_rate") == 1.0


async def test_a_service_without_commands_tells_nothing_of_them(road: Postroad) -> None:
    plain = Postroad("plain", road.database_url, road.broker_url)
    gauges, _ = await read_gauges(plain)
    assert gauges.value("pending_commands") is None
    await plain.aclose()
