"""Survivors that change nothing that matters: equivalent, or only slower. Each with one sentence that says why."""

import tomllib
from pathlib import Path
from typing import Final

from proof.mutation.mutants import Mutant

LIST: Final = Path(__file__).with_name("explained.toml")
Key = tuple[str, str, str, str]


def key_of(mutant: Mutant) -> Key:
    return mutant.file, mutant.function, mutant.operator, mutant.after


def explained(source: Path = LIST) -> dict[Key, str]:
    entries = tomllib.loads(source.read_text(encoding="utf-8")).get("survivor", [])
    return {(one["file"], one["function"], one["operator"], one["line"]): one["why"] for one in entries}
