"""The guides to protobuf and to settings: what they show is what runs."""

import re
import sys
from pathlib import Path

import pytest

from postroad.settings.model import Publisher, PubSub, RabbitMQ, Settings, Subscription
from tests.journeys.test_docs import ROOT, blocks, run


@pytest.mark.spec("P8")
def test_the_guide_to_protobuf_runs_from_top_to_bottom(tmp_path: Path) -> None:
    (tmp_path / "guide.py").write_text("\n".join(code for _, code in blocks("docs/protobuf.md")), encoding="utf-8")
    paths = f"{ROOT / 'src'}:{ROOT}"
    ran = run(tmp_path, sys.executable, "guide.py", PYTHONPATH=paths)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.spec("P15")
def test_the_guide_to_settings_shows_a_file_that_works(tmp_path: Path) -> None:
    page = (ROOT / "docs/settings.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "config.yaml").write_text(shown, encoding="utf-8")
    ((_, code),) = blocks("docs/settings.md")
    (tmp_path / "guide.py").write_text(code, encoding="utf-8")
    ran = run(tmp_path, sys.executable, "guide.py", GCP_PROJECT_ID="")
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("section", [Settings, PubSub, Publisher, Subscription, RabbitMQ])
def test_every_key_is_in_the_guide(section: type) -> None:
    page = (ROOT / "docs/settings.md").read_text(encoding="utf-8")
    for name in section.__dataclass_fields__:  # type: ignore[attr-defined]
        assert f"`{name}" in page or f".{name}" in page, name
