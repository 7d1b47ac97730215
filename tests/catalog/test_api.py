"""Both services over HTTP: what they refuse, their document, their health."""

import httpx
import pytest
from fastapi import FastAPI

from examples.catalog.api import create_app
from examples.catalog.problems import MEDIA_TYPE
from examples.catalog.reader import Reader
from examples.catalog.writer import Writer

pytestmark = pytest.mark.parametrize("store_kind", ["sqlite"])


async def test_refusals_are_problem_documents(client: httpx.AsyncClient, rain: dict[str, object]) -> None:
    video_id = (await client.post("/videos", json=rain)).json()["video_id"]
    await client.patch(f"/videos/{video_id}", json={"version": 1, "title": "Louder"})
    for answer, status, kind, told in (
        (await client.get("/videos/nobody"), 404, "video-not-found", "There is no video nobody."),
        (await client.get("/search/nobody"), 404, "video-not-found", "There is no video nobody."),
        (
            await client.patch(f"/videos/{video_id}", json={"version": 1, "title": "x"}),
            409,
            "version-conflict",
            "is at version 2",
        ),
        (await client.delete(f"/videos/{video_id}?version=1"), 409, "version-conflict", "is at version 2, not 1"),
        (await client.delete("/videos/nobody?version=1"), 404, "video-not-found", "nobody"),
        (await client.get("/nowhere"), 404, "http", "Not Found"),
    ):
        assert (answer.status_code, answer.headers["content-type"]) == (status, MEDIA_TYPE)
        problem = answer.json()
        assert (problem["type"], problem["status"]) == (f"urn:catalog:problem:{kind}", status)
        assert told in problem["detail"]


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        ({"title": ""}, "body.title"),
        ({"title": "a\0b"}, "body.title"),
        ({"title": "x" * 201}, "body.title"),
        ({"uploader_id": "me"}, "body.uploader_id"),
        ({"duration_micros": 0}, "body.duration_micros"),
        ({"duration_micros": 2**63}, "body.duration_micros"),
        ({"published_at": "2025-10-24T10:30:00"}, "body.published_at"),
        ({"status": "gone"}, "body.status"),
        ({"colour": "red"}, "body.colour"),
    ],
)
async def test_what_is_wrong_is_named(
    client: httpx.AsyncClient, rain: dict[str, object], bad: dict[str, object], field: str
) -> None:
    answer = await client.post("/videos", json={**rain, **bad})
    assert (answer.status_code, answer.headers["content-type"]) == (422, MEDIA_TYPE)
    assert field in answer.json()["detail"]
    assert (await client.get("/videos")).json() == []


async def test_a_change_that_changes_nothing_is_no_event(client: httpx.AsyncClient, rain: dict[str, object]) -> None:
    video_id = (await client.post("/videos", json=rain)).json()["video_id"]
    answer = await client.patch(f"/videos/{video_id}", json={"version": 1, "title": "Rain"})
    assert (answer.status_code, answer.json()["version"]) == (200, 1)
    assert len((await client.get("/events")).json()) == 1


async def test_a_time_of_publishing_keeps_its_moment(client: httpx.AsyncClient, rain: dict[str, object]) -> None:
    made = (await client.post("/videos", json={**rain, "published_at": "2025-10-24T12:30:00+02:00"})).json()
    assert made["published_at"] == "2025-10-24T10:30:00Z"


async def test_wildcards_are_letters_to_the_search(client: httpx.AsyncClient, reader: Reader) -> None:
    assert (await client.get("/search", params={"q": "100% _ \\ \0"})).json() == []


def test_every_route_is_described_with_examples(writer: Writer, reader: Reader, app: FastAPI) -> None:
    document = app.openapi()
    assert set(document["paths"]) == {
        *("/videos", "/videos/{video_id}", "/events", "/search", "/search/{video_id}", "/livez", "/readyz")
    }
    conflict = document["paths"]["/videos/{video_id}"]["patch"]["responses"]["409"]["content"][MEDIA_TYPE]["example"]
    assert conflict["type"] == "urn:catalog:problem:version-conflict"
    for name in ("NewVideo", "Changes", "Video"):
        fields = document["components"]["schemas"][name]["properties"]
        assert any("examples" in field for field in fields.values())


async def test_it_is_ready_while_it_runs_and_live_always(client: httpx.AsyncClient) -> None:
    for path in ("/livez", "/readyz"):
        answer = await client.get(path)
        assert (answer.status_code, answer.text) == (200, "ok\n")


@pytest.mark.spec("F12")
async def test_it_is_not_ready_before_it_has_started(writer: Writer, reader: Reader) -> None:
    app = create_app(writer, reader)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://catalog") as client:
        answer = await client.get("/readyz")
        assert (answer.status_code, "starting" in answer.text) == (503, True)
        assert (await client.get("/livez")).status_code == 200
    for service in (writer, reader):
        await service.road.aclose()


async def test_one_service_alone_answers_for_itself(writer: Writer) -> None:
    app = create_app(writer)
    web = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://catalog")
    async with app.router.lifespan_context(app), web as client:
        assert (await client.get("/videos")).status_code == 200
        assert (await client.get("/search")).status_code == 404
        assert (await client.get("/")).status_code == 404
        assert (await client.get("/readyz")).status_code == 200
