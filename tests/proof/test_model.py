"""The protocol's model: no state within the bounds breaks a promise, and every rule taken away is missed."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from proof.model import INVARIANTS, MUTANTS, SCENARIOS, Mutant, Rules, World, explore, story
from proof.model.__main__ import ENOUGH, main
from proof.model.story import SENTENCES

BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}
MUTANT = {mutant.name: mutant for mutant in MUTANTS}


@pytest.fixture(scope="module")
def told_and_written(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    """What the command finds: the only test run that goes through all the states."""
    file: Path = tmp_path_factory.mktemp("model") / "model.json"
    ran = CliRunner().invoke(main, ["--json", str(file)])
    assert ran.exit_code == 0, ran.output
    return ran.output, json.loads(file.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def figures(told_and_written: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    return told_and_written[1]


def test_the_command_tells_how_long_it_took_and_where_the_stories_are(
    told_and_written: tuple[str, dict[str, Any]],
) -> None:
    told, written = told_and_written
    assert f"All of it in {written['seconds']} seconds, {written['seconds of the processor']} of them" in told
    assert 'make model ARGS="--story all"' in told


def test_no_state_within_the_bounds_breaks_a_promise(figures: dict[str, Any]) -> None:
    scenarios = figures["scenarios"]
    assert [scenario["name"] for scenario in scenarios] == list(BY_NAME)
    assert {scenario["name"]: scenario["violation"] for scenario in scenarios} == dict.fromkeys(BY_NAME)
    assert sum(int(str(scenario["states"])) for scenario in scenarios) >= ENOUGH >= 300_000


def test_everything_that_can_happen_does_happen_somewhere(figures: dict[str, Any]) -> None:
    """Else a promise might hold only because nothing ever tries it."""
    happened = {kind for scenario in figures["scenarios"] for kind in scenario["kinds"]}
    assert happened == set(SENTENCES) - {"run without lease"}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_a_rule_taken_away_is_missed(mutant: Mutant) -> None:
    found = mutant.hunt()
    assert found.violation is not None
    assert found.violation.invariant == mutant.breaks
    assert len(story(found.world, found.trace)) == len(found.trace) > 0


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_with_the_rule_the_same_bounds_show_no_harm(mutant: Mutant) -> None:
    """Else the mutant's story would prove nothing about its rule."""
    assert explore(World(mutant.scenario)).violation is None


def test_every_rule_has_its_mutant_and_every_promise_is_broken_by_some() -> None:
    assert {mutant.rule for mutant in MUTANTS} == {rule.name for rule in dataclasses.fields(Rules)}
    assert {mutant.breaks for mutant in MUTANTS} == set(INVARIANTS)
    assert len(MUTANT) == len(MUTANTS)


def test_a_story_reads_as_sentences() -> None:
    found = MUTANT["unfenced mark"].hunt()
    assert found.violation is not None
    assert story(found.world, found.trace) == [
        "a writer opens a transaction and writes a1 as version 1 of its key",
        "the transaction of a1 commits: it is NEW in the outbox",
        "relay A takes shard 0 (epoch 1)",
        "relay A reads a1",
        "relay A sends a1, the broker takes it and confirms",
        "relay B takes over shard 0 (epoch 2), for the lease of relay A ran out",
        "relay A marks a1 SENT under epoch 1",
    ]
    assert found.violation.says.startswith("a1 was marked by a relay that no longer holds its shard")


@pytest.mark.parametrize("name", ["one in flight", "passing"])
def test_a_second_run_finds_the_same(name: str) -> None:
    first, second = explore(World(BY_NAME[name])), explore(World(BY_NAME[name]))
    assert (first.states, first.transitions, first.depth) == (second.states, second.transitions, second.depth)
    assert first.states > 1_000


def test_the_shortest_story_does_not_depend_on_the_bounds() -> None:
    mutant = MUTANT["unfenced mark"]
    wider = dataclasses.replace(mutant, scenario=dataclasses.replace(mutant.scenario, relays=3, keys=(0, 0)))
    assert len(wider.hunt().trace) == len(mutant.hunt().trace)


def test_the_command_tells_a_story() -> None:
    told = CliRunner().invoke(main, ["--story", "mark before confirm"])
    assert told.exit_code == 0
    assert "nothing lost: a1 is SENT, but was never in the broker" in told.output


def test_the_command_knows_its_mutants() -> None:
    told = CliRunner().invoke(main, ["--story", "no such thing"])
    assert told.exit_code == 2
    assert "mark before confirm" in told.output
