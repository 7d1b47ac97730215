"""postroad doctor on the command line, beside processes that run."""

import json
from pathlib import Path

import pytest

from postroad.operations.doctor import CHECKS, PATIENCE
from tests.support.commands import Shell
from tests.support.components import ROOT
from tests.support.rabbitmq import fresh_vhost


@pytest.mark.spec("F14")
def test_what_the_doctor_recommends_leads_to_health(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    sick = shell("doctor shop:road", expect=1)
    assert "2 faults" in sick
    assert "  postroad db migrate --app shop:road\n" in sick
    assert "  postroad run --app shop:road\n" in sick
    assert "postroad db migrate" in shell("doctor shop:road --last", expect=1)
    assert not (tmp_path / "shop.db").exists()
    shell("db migrate --app shop:road")
    with shell.running("run --app shop:road") as running:
        running.until("started")
        well = shell("doctor shop:road")
        assert "0 faults, 0 warnings" in well
        assert " fault " not in well
        assert shell("doctor shop:road --last").split("\n", 1)[1] == well
        shell("publish shop:road order.placed", '{"order_id": "o-1", "cents": 13}')
        running.until("dead")
        assert "postroad dlq list --topic shop.order.events --app shop:road" in shell("doctor shop:road")


@pytest.mark.spec("F14")
def test_a_service_on_postgresql_and_rabbitmq_is_examined(
    tmp_path: Path, fresh_postgresql_url: str, rabbitmq_url: str
) -> None:
    with fresh_vhost(rabbitmq_url) as broker_url:
        shell = Shell(tmp_path, DATABASE_URL=fresh_postgresql_url, BROKER_URL=broker_url, POSTROAD_APP="shop:road")
        with shell.running("dev") as running:
            running.until("started")
            report = json.loads(shell("doctor --json"))
        assert {one["check"] for one in report["findings"]} == {check.name for check in CHECKS}
        of_the_server = ("settings", "rights")
        assert [one for one in report["findings"] if one["level"] != "ok" and one["check"] not in of_the_server] == []
        told = {"check": "database", "looked_at": "the database answers", "level": "ok"}
        assert report["findings"][0] == {**told, "cause": "", "cure": "", "command": ""}


@pytest.mark.spec("F14")
@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("amqp://guest:guest@127.0.0.1:9/?confirms=false", "confirms"),
        ("kafka://127.0.0.1:9/?acks=1", "acks"),
        ("pubsub://some-project?exactly_once=no", "exactly_once"),
    ],
)
def test_a_broker_url_that_asks_for_less_than_confirms_is_a_fault_that_names_the_key(
    tmp_path: Path, url: str, key: str
) -> None:
    shell = Shell(tmp_path, BROKER_URL=url)
    assert f"The broker URL has an unknown option '{key}'." in shell("doctor shop:road", expect=1)
    assert f"'{key}'" in shell("doctor shop:road --json", expect=1)


@pytest.mark.spec("F14", "R3")
def test_settings_that_switch_confirms_off_are_a_fault_that_names_the_key(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    off = {"rabbitmq": {"publisher_confirm_type": "none"}}
    (tmp_path / "careless.py").write_text(f"import postroad\nroad = postroad.Postroad.from_settings({off!r})\n")
    told = shell("doctor careless:road", expect=1)
    assert "rabbitmq.publisher_confirm_type" in told
    assert "an event is sent when the broker has confirmed it" in told


def test_without_an_application_it_is_not_understood(tmp_path: Path) -> None:
    assert "Which application?" in Shell(tmp_path)("doctor", expect=2)


def test_no_password_is_told(tmp_path: Path) -> None:
    secret = "hunter2-hunter2"
    shell = Shell(
        tmp_path,
        DATABASE_URL=f"postgresql://me:{secret}@127.0.0.1:9/none",
        BROKER_URL=f"amqp://me:{secret}@127.0.0.1:9/",
    )
    assert "127.0.0.1:9" in shell("doctor shop:road", expect=1)
    shell("doctor shop:road --json", expect=1)
    assert secret not in shell.output


def test_the_page_tells_of_every_check() -> None:
    page = (ROOT / "docs/doctor.md").read_text(encoding="utf-8")
    for check in CHECKS:
        assert f"| {check.name} |" in page, check.name
    assert f"{PATIENCE:g} seconds" in page
