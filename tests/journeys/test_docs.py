"""What the README and the guides show is what runs."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from postroad.cli import main
from tests.support.commands import Shell, leaves
from tests.support.kafka import remove_topics

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"```python(?: file=(\S+))?\n(.*?)```", re.DOTALL)


def blocks(page: str) -> list[tuple[str, str]]:
    return _BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))


def run(folder: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if k not in ("DATABASE_URL", "BROKER_URL", "POSTROAD_APP")}
    paths = os.pathsep.join([str(ROOT / "src"), *filter(None, [clean.get("PYTHONPATH")])])
    return subprocess.run(
        command,
        cwd=folder,
        env=clean | {"PYTHONPATH": paths} | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


POSTROAD = (sys.executable, "-c", "from postroad.cli import main; main()")


def test_the_readme_block_handles_an_event_unchanged(tmp_path: Path) -> None:
    _, code = blocks("README.md")[0]
    (tmp_path / "block.py").write_text(code, encoding="utf-8")
    ran = run(tmp_path, sys.executable, "block.py")
    assert (ran.stdout, ran.stderr, ran.returncode) == ("receipt for o-1: 42.00\n", "", 0)


def test_the_readme_block_is_short(tmp_path: Path) -> None:
    _, code = blocks("README.md")[0]
    assert len([line for line in code.splitlines() if line.strip()]) <= 25


def test_the_readme_block_runs_on_postgresql(tmp_path: Path, fresh_postgresql_url: str) -> None:
    _, code = blocks("README.md")[0]
    (tmp_path / "block.py").write_text(code, encoding="utf-8")
    ran = run(tmp_path, sys.executable, "block.py", DATABASE_URL=fresh_postgresql_url)
    assert (ran.stdout, ran.stderr, ran.returncode) == ("receipt for o-1: 42.00\n", "", 0)


def test_the_readme_block_runs_on_rabbitmq(tmp_path: Path, rabbitmq_url: str) -> None:
    _, code = blocks("README.md")[0]
    (tmp_path / "block.py").write_text(code, encoding="utf-8")
    ran = run(tmp_path, sys.executable, "block.py", BROKER_URL=rabbitmq_url)
    assert (ran.stdout, ran.stderr, ran.returncode) == ("receipt for o-1: 42.00\n", "", 0)


def test_the_readme_block_runs_on_kafka(tmp_path: Path, kafka_url: str) -> None:
    _, code = blocks("README.md")[0]
    (tmp_path / "block.py").write_text(code, encoding="utf-8")
    remove_topics(kafka_url, "shop.order.events", "shop.order.events.dlq")
    ran = run(tmp_path, sys.executable, "block.py", BROKER_URL=kafka_url)
    assert (ran.stdout, ran.returncode) == ("receipt for o-1: 42.00\n", 0), ran.stderr


GUIDES = ("writing", "consuming", "commands-and-events", "consistency", "observing", "dashboard")


@pytest.mark.parametrize("page", [f"docs/{guide}.md" for guide in GUIDES])
def test_a_guides_code_runs_from_top_to_bottom(page: str, tmp_path: Path) -> None:
    (tmp_path / "guide.py").write_text("\n".join(code for _, code in blocks(page)), encoding="utf-8")
    ran = run(tmp_path, sys.executable, "guide.py")
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("page", ["README.md", *(str(page.relative_to(ROOT)) for page in (ROOT / "docs").glob("*.md"))])
def test_no_application_that_is_shown_runs_when_it_is_imported(page: str) -> None:
    shown = blocks(page)
    for file in {name for name, _ in shown}:
        code = "\n".join(code for name, code in shown if name == file)
        assert not ("\nroad = Postroad(" in code and "\nasyncio.run(" in code)


def test_the_first_steps_lead_where_they_say(tmp_path: Path) -> None:
    for name, code in blocks("docs/first-steps.md"):
        (tmp_path / name).write_text(code, encoding="utf-8")
    assert run(tmp_path, *POSTROAD, "db", "migrate", "shop:road").returncode == 0
    assert "up to date" in run(tmp_path, *POSTROAD, "db", "migrate", "shop:road").stdout
    for _ in range(2):  # whoever tries it runs it again
        ordered = run(tmp_path, sys.executable, "orders.py")
        assert ordered.returncode == 0, ordered.stderr
    status = run(tmp_path, *POSTROAD, "status", "shop:road", "--json")
    assert status.returncode == 0, status.stderr
    assert json.loads(status.stdout)["outboxes"][0]["waiting"] == 2
    tested = run(tmp_path, sys.executable, "-m", "pytest", "-q", "-o", "asyncio_mode=auto", "test_shop.py")
    assert tested.returncode == 0, tested.stdout


def test_a_second_service_gets_the_firsts_events(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    for name, code in [*blocks("docs/first-steps.md"), *blocks("docs/second-service.md")]:
        (tmp_path / name).write_text(code, encoding="utf-8")
    assert run(tmp_path, sys.executable, "parcels.py").stdout == ""
    with shell.running("dev shipping:road") as shipping, shell.running("dev shop:road") as shop:
        shipping.until("started")
        shop.until("started")
        ordered = run(tmp_path, sys.executable, "orders.py")
        assert ordered.returncode == 0, ordered.stderr
        shipping.until("handled by shipping-parcels")
        shop.until("handled by receipts")
    order_id = ordered.stdout.split()[-1]
    assert run(tmp_path, sys.executable, "parcels.py").stdout == f"a parcel for {order_id}\n"
    assert (tmp_path / "shop.db").exists()
    assert (tmp_path / "shipping.db").exists()


def test_every_command_and_every_option_is_on_the_page() -> None:
    page = (ROOT / "docs/commands.md").read_text(encoding="utf-8")
    for path, command in leaves(main):
        assert f"`postroad {' '.join(path)}" in page
        for option in (name for one in command.params for name in one.opts if name.startswith("--")):
            assert f"`{option}" in page, option


def test_links_between_pages_lead_somewhere() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} → {target}"


def test_every_hazard_has_a_test_that_exists() -> None:
    rows = re.findall(r"^\| ([A-G]\d+) \|(.*)$", (ROOT / "docs/hazards.md").read_text(encoding="utf-8"), re.MULTILINE)
    last = {"A": 7, "B": 19, "C": 27, "D": 32, "E": 40, "F": 47, "G": 49}
    letters = [next(letter for letter in last if number <= last[letter]) for number in range(1, 50)]
    assert [id for id, _ in rows] == [f"{letter}{number}" for number, letter in enumerate(letters, 1)]
    for id, row in rows:
        named = re.findall(r"`([\w/]+\.py)::(test_\w+)`", row)
        assert named, id
        for path, name in named:
            assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), f"{id}: {path}::{name}"
