"""The studio over HTTP: its answers, its refusals, its document, its page."""

import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import httpx
import pytest

from examples.genesis import picture
from examples.genesis.api import create_app
from examples.genesis.session import Step
from examples.genesis.studio import Studio
from tests.support.studio import everything, until


@pytest.fixture
async def client(studio: Studio) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(create_app(studio), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://genesis") as client:
        yield client


async def test_a_story_begins_is_rejected_and_confirmed(client: httpx.AsyncClient, studio: Studio) -> None:
    begun = await client.post("/sessions", json={"title": "Dawn", "idea": "a lighthouse"})
    id = begun.json()["id"]
    assert (begun.status_code, begun.json()["step"]) == (201, "started")
    async with studio.road.running():
        await until(studio, id, Step.PROPOSED)
        rejected = await client.post(f"/sessions/{id}/theme/reject", json={"round": 1, "wish": "more sea"})
        assert (rejected.json()["step"], rejected.json()["round"]) == ("requested", 2)
        await until(studio, id, Step.PROPOSED)
        confirmed = (await client.post(f"/sessions/{id}/theme/confirm", json={"round": 2})).json()
        assert "more sea" in confirmed["chosen"]["Theme"]["text"]
        await until(studio, id, Step.PROPOSED)
        await studio.road.drain()
    assert (await client.get(f"/sessions/{id}")).json()["stage"] == "World"
    assert (await client.get("/sessions")).json() == [
        {"session_id": id, "title": "Dawn", "stage": "World", "step": "proposed"}
    ]
    trace = (await client.get(f"/sessions/{id}/trace")).json()
    assert (trace["correlation_id"], trace["broken"]) == (f"flow-{id}", [])
    assert [step["type"] for step in trace["steps"] if not step["causation_id"]] == ["Command.Genesis.Session.Start"]
    shown = (await picture.picture(studio, id))["session"]
    assert [one["wish"] for one in shown["rejected"]] == ["more sea"]
    assert len(shown["steps"]) == len(trace["steps"])


async def test_the_same_key_gives_the_same_answer_and_one_effect(client: httpx.AsyncClient, studio: Studio) -> None:
    key = {"Idempotency-Key": str(uuid4())}
    first = await client.post("/sessions", json={"title": "Dawn"}, headers=key)
    again = await client.post("/sessions", json={"title": "Dawn"}, headers=key)
    assert first.json() == again.json()
    id = first.json()["id"]
    async with studio.road.running():
        await until(studio, id, Step.PROPOSED)
    key = {"Idempotency-Key": str(uuid4())}
    for _ in range(2):
        answer = await client.post(f"/sessions/{id}/theme/reject", json={"round": 1}, headers=key)
        assert (answer.status_code, answer.json()["round"]) == (200, 2)
    assert [one.message.type for one in await everything(studio)].count("Genesis.Session.Theme.Requested") == 2
    other = await client.post("/sessions", json={"title": "Dusk"}, headers=key)
    assert (other.status_code, other.json()["type"]) == (409, "urn:genesis:problem:key-used")


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "kind"),
    [
        ("GET", "/sessions/nobody", None, 404, "session-not-found"),
        ("GET", "/sessions/nobody/trace", None, 404, "session-not-found"),
        ("POST", "/sessions/nobody/theme/confirm", {"round": 1}, 404, "session-not-found"),
        ("POST", "/sessions/{id}/theme/confirm", {"round": 1}, 409, "out-of-order"),
        ("POST", "/sessions/{id}/plot/reject", {"round": 1}, 409, "out-of-order"),
        ("POST", "/sessions/{id}/ending/confirm", {"round": 1}, 422, "invalid-request"),
        ("POST", "/sessions/{id}/theme/confirm", {"round": 0}, 422, "invalid-request"),
        ("POST", "/sessions", {"title": ""}, 422, "invalid-request"),
        ("POST", "/sessions", {"title": "   "}, 422, "invalid-request"),
        ("GET", "/nothing", None, 404, "http"),
    ],
)
async def test_a_refusal_is_a_problem_document(
    client: httpx.AsyncClient, studio: Studio, method: str, path: str, body: Any, status: int, kind: str
) -> None:
    path = path.replace("{id}", await studio.start("Dawn"))
    answer = await client.request(method, path, json=body)
    problem = answer.json()
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    assert set(problem) == {"type", "title", "status", "detail", "instance"}
    assert (problem["type"], problem["status"], problem["instance"]) == (f"urn:genesis:problem:{kind}", status, path)


async def test_what_breaks_inside_is_a_problem_without_details(
    client: httpx.AsyncClient, studio: Studio, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise RuntimeError("the password is 1234")

    monkeypatch.setattr(studio, "start", fail)
    answer = await client.post("/sessions", json={"title": "Dawn"})
    assert (answer.status_code, answer.json()["type"]) == (500, "urn:genesis:problem:internal")
    assert "1234" not in answer.text


async def test_the_document_names_every_refusal(client: httpx.AsyncClient) -> None:
    document = (await client.get("/openapi.json")).json()
    confirm = document["paths"]["/sessions/{session_id}/{stage}/confirm"]["post"]["responses"]
    assert set(confirm["409"]["content"]["application/problem+json"]["examples"]) == {
        "out-of-order",
        "draft-replaced",
        "session-finished",
        "key-used",
        "still-processing",
    }
    assert all(route["tags"] for methods in document["paths"].values() for route in methods.values())


async def test_the_page_is_one_file_that_loads_nothing_from_elsewhere(client: httpx.AsyncClient) -> None:
    page = (await client.get("/")).text
    assert "What came of what" in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "https://" not in page


async def test_the_stream_tells_what_there_is_and_bears_with_a_session_that_is_not(studio: Studio) -> None:
    changes = picture.changes(studio, "nobody")
    told = json.loads((await anext(changes)).removeprefix("data: "))
    await changes.aclose()
    assert (told["sessions"], told["session"]) == ([], None)
