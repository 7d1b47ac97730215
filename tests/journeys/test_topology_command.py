"""postroad topology: the plan first, then the deed, the same on every broker."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.commands import Shell
from tests.support.components import address
from tests.support.pubsub import fresh_project
from tests.support.rabbitmq import fresh_vhost


@pytest.fixture(params=["embedded", "rabbitmq", "pubsub"])
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shell]:
    """On a broker where nothing has been made yet."""
    match request.param:
        case "embedded":
            yield Shell(tmp_path, BROKER_URL=f"embedded:{tmp_path / 'broker.db'}")
        case "rabbitmq":
            with fresh_vhost(address("rabbitmq")) as url:
                yield Shell(tmp_path, BROKER_URL=url)
        case _:
            yield Shell(tmp_path, BROKER_URL=fresh_project(address("pubsub")))


@pytest.mark.spec("P19")
def test_the_plan_is_shown_and_applied_and_then_there_is_nothing_left(shell: Shell) -> None:
    told = shell("topology plan shop:road")
    assert "shop.order.events.receipts" in told
    assert "Nothing was done. Run: postroad topology apply shop:road" in told
    done = json.loads(shell("topology apply shop:road --json"))
    assert done["applied"] is True
    assert {change["kind"] for change in done["changes"]} == {"topic", "subscription"}
    assert "is up to date" in shell("topology plan shop:road")
    assert re.search(r"^shop\.order\.events +receipts +\w+ \(order\.placed\)", shell("topology show shop:road"), re.M)
    assert json.loads(shell("topology show shop:road --json"))["service"] == "shop"
    assert "is up to date" in shell("topology apply shop:road")


def test_a_broker_that_is_not_there_is_named(tmp_path: Path) -> None:
    shell = Shell(tmp_path, BROKER_URL="pubsub://my-project?emulator=127.0.0.1:9")
    told = shell("topology apply shop:road", expect=1)
    assert "127.0.0.1:9" in told
    assert len(told.splitlines()) == 1


def test_without_an_application_nobody_knows_what_to_do(tmp_path: Path) -> None:
    shell = Shell(tmp_path, BROKER_URL="embedded:", DATABASE_URL="sqlite://")
    assert "Name it with --app" in shell("topology plan", expect=1)
