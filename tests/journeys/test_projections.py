"""A read model as its user meets it: the guide, the command line, and processes that are killed."""

import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from postroad import Postroad
from tests.journeys.test_docs import POSTROAD, blocks, run
from tests.support.commands import Shell
from tests.support.projections import NAME, VideoDeleted, VideoSaved, VideoViewed, create, declare, make_table


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, code in blocks("docs/projections.md"):
        if name:
            (tmp_path / name).write_text(code, encoding="utf-8")
    return tmp_path


def projection(folder: Path, *words: str) -> tuple[int, Any]:
    ran = run(folder, *POSTROAD, "projection", *words, "--json", "--app", "catalog:road")
    assert ran.returncode in (0, 1), ran.stderr
    return ran.returncode, json.loads(ran.stdout) if ran.stdout else ran.stderr


def spoil(folder: Path, sql: str) -> None:
    code = f"import sqlite3; c = sqlite3.connect('catalog.db'); c.execute({sql!r}); c.commit()"
    assert run(folder, sys.executable, "-c", code).returncode == 0


@pytest.mark.spec("F9", "F10")
def test_the_guide_leads_where_it_says(folder: Path) -> None:
    def told(*words: str) -> str:
        ran = run(folder, *POSTROAD, "projection", *words, "--app", "catalog:road")
        return ran.stdout + ran.stderr

    ran = run(folder, sys.executable, "catalog.py")
    assert (ran.stdout, ran.stderr) == ("Cats: 1 views, version 2\n", "")
    spoil(folder, "UPDATE video_search SET title = 'Cows' WHERE video_id = 'v-1'")
    code, found = projection(folder, "verify", "video_search")
    assert (code, found["right"], found["differences"]["keys"]) == (1, False, {"differing": ["v-1"]})
    assert "video_search would be rebuilt from its BrokerSource" in told("rebuild", "video_search")
    rebuilt = told("rebuild", "video_search", "--yes")
    assert "video_search is rebuilt from 4 events, generation 2" in rebuilt
    assert "differing   1     v-1" in rebuilt
    assert "1 row, no difference" in told("verify", "video_search", "--source", "outbox")
    assert "video_search  video_search  catalog-search  3           live" in told("list")
    assert run(folder, sys.executable, "backfill.py").stdout == "3 snapshots\n"
    assert run(folder, sys.executable, "catalog.py").stdout.count("Film") == 3


def test_a_rebuild_that_is_killed_leaves_the_table_serving(folder: Path) -> None:
    run(folder, sys.executable, "catalog.py")
    (folder / "slow.py").write_text(
        "import asyncio\nfrom catalog import *\n"
        "class Slow:\n"
        "    async def size(self): return 0\n"
        "    async def read(self):\n"
        "        print('reading', flush=True)\n"
        "        await asyncio.sleep(3600)\n"
        "        yield\n"
        "videos.source = Slow()\n",
        encoding="utf-8",
    )
    with Shell(folder).running("projection rebuild video_search --yes --app slow:road") as rebuilding:
        rebuilding.until("reading")
        assert "is being rebuilt already" in projection(folder, "rebuild", "video_search", "--yes")[1]
        rebuilding.process.send_signal(signal.SIGKILL)
        rebuilding.process.wait()
    spoil(folder, "UPDATE postroad_projections SET expires_at = '2000-01-01T00:00:00.000000Z'")
    assert projection(folder, "rebuild", "video_search", "--yes")[1]["rebuilt"] is True
    assert run(folder, sys.executable, "catalog.py").stdout.startswith("Cats: ")


@pytest.mark.spec("F7", "P11")
def test_a_projection_survives_whatever_happens_to_its_worker(survives: Any) -> None:
    def build(database_url: str) -> Postroad:
        road = Postroad("catalog", database_url)
        declare(road, make_table())
        return road

    async def setup(road: Postroad) -> None:
        await create(road, make_table())

    async def scenario(road: Postroad) -> None:
        async with road.session() as session, session.begin():
            for one in (VideoSaved("a", "one"), VideoViewed("a"), VideoDeleted("b")):
                road.add(session, one)

    async def outcome(road: Postroad) -> Any:
        async with road.store.reading() as connection:
            found = await connection.execute(text(f"SELECT video_id, views, version, deleted FROM {NAME} ORDER BY 1"))
            return [tuple(row) for row in found]

    assert survives(build, scenario, setup=setup, outcome=outcome)
