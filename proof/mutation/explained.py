"""Survivors that change nothing that matters: equivalent, or only slower. Each with one sentence that says why."""

import tomllib
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from proof.mutation.mutants import Mutant

LIST: Final = Path(__file__).with_name("explained.toml")


@dataclass(frozen=True, slots=True)
class Explanation:
    file: str
    """Below src/postroad; `*` for what the stores have in common. Likewise the function, or the statement."""
    function: str
    operator: str
    line: str
    """As it is with the mistake."""
    why: str

    def about(self, mutant: Mutant) -> bool:
        return (
            (self.operator, self.line) == (mutant.operator, mutant.after)
            and fnmatchcase(mutant.file, self.file)
            and fnmatchcase(mutant.function, self.function)
        )


def explained(source: Path = LIST) -> list[Explanation]:
    return [Explanation(**one) for one in tomllib.loads(source.read_text(encoding="utf-8")).get("survivor", [])]
