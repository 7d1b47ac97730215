"""Rows of a read model that somebody has deleted or set back are found by the check."""

import pytest

from postroad.consistency import readmodels
from tests.support.harm import found
from tests.support.projections import GROUP, NAME, Catalog, deleted, saved, viewed


@pytest.mark.spec("G8")
async def test_a_read_model_that_has_all_its_group_has_handled_is_in_order(videos: Catalog) -> None:
    await videos.deliver(saved("a", 2), saved("a", 1), viewed("a", 3), saved("b", 1), deleted("b", 2))
    assert "behind_projection" not in await found(videos.road)


@pytest.mark.spec("G8")
@pytest.mark.parametrize("page", [1, 2, 1_000])
async def test_rows_that_are_gone_or_were_set_back_are_found(
    videos: Catalog, page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readmodels, "_PAGE", page)
    await videos.deliver(saved("a", 1), saved("b", 1), saved("c", 1))
    await videos.deliver(viewed("b", 2))
    await videos.run(f"DELETE FROM {NAME} WHERE video_id = 'a'")
    await videos.run(f"UPDATE {NAME} SET version = 1 WHERE video_id = 'b'")
    (finding,) = (await found(videos.road))["behind_projection"]
    assert (finding.where, finding.count, sorted(finding.ids)) == (NAME, 2, ["video/a v1", "video/b v2"])


async def test_what_another_handler_of_the_group_had_is_not_missed(videos: Catalog) -> None:
    await videos.deliver(saved("a", 1))
    await videos.run(f"UPDATE postroad_inbox SET event_type = 'video.shared' WHERE consumer_group = '{GROUP}'")
    await videos.run(f"DELETE FROM {NAME}")
    assert await found(videos.road) == {}
