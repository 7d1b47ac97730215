"""Shows which requirements of docs/requirements.md the recorded tests prove.

usage: scripts/requirements.py [--strict]     --strict: exit 1 when one is not proved
"""

import json
import re
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
ROW = re.compile(r"^\| (?P<id>[A-Z]\d+) \| (?P<text>.+?) \| (?P<components>.+?) \|$", re.MULTILINE)


class Requirement(NamedTuple):
    id: str
    text: str
    components: list[str]


class Standing(NamedTuple):
    requirement: Requirement
    tests: int
    missing: list[str]

    @property
    def proved(self) -> bool:
        return self.tests > 0 and not self.missing


def read_requirements(table: str) -> list[Requirement]:
    return [
        Requirement(row["id"], row["text"], [] if row["components"] == "-" else row["components"].split(", "))
        for row in ROW.finditer(table)
    ]


def judge(requirement: Requirement, record: dict[str, dict[str, list[str]]]) -> Standing:
    proofs = [proof for proof in record.values() if requirement.id in proof["spec"]]
    proved_on = {component for proof in proofs for component in proof["components"]}
    missing = [component for component in requirement.components if component not in proved_on]
    return Standing(requirement, len(proofs), missing)


def describe(standing: Standing) -> str:
    if standing.tests == 0:
        return "not yet"
    count = f"{standing.tests} test" + ("s" if standing.tests > 1 else "")
    return count if standing.proved else f"{count}, not yet on {', '.join(standing.missing)}"


def main(arguments: list[str]) -> int:
    recorded = ROOT / "build" / "requirements.json"
    record = json.loads(recorded.read_text(encoding="utf-8")) if recorded.exists() else {}
    table = (ROOT / "docs" / "requirements.md").read_text(encoding="utf-8")
    standings = [judge(requirement, record) for requirement in read_requirements(table)]
    for standing in standings:
        mark = "✓" if standing.proved else "·"
        text = standing.requirement.text
        short = text if len(text) <= 72 else text[:71].rstrip() + "…"
        print(f"{mark} {standing.requirement.id:<4}{short:<73} {describe(standing)}")
    proved = sum(standing.proved for standing in standings)
    print(f"\n{proved} of {len(standings)} proved" + ("" if record else "; no record yet: run make test"))
    return 1 if "--strict" in arguments and proved < len(standings) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
