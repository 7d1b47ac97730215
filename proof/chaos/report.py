"""The table, the line that moves while it runs, and the file for programs."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.table import Table

from proof.chaos.campaign import Restless, Result
from proof.chaos.plan import Tally


def progress_line(store: str, broker: str, phase: str, tally: Tally) -> str:
    cuts, restarts = tally.cuts + tally.broker_cuts, tally.restarts + tally.broker_restarts
    return (
        f"{store} × {broker}: {phase} · {tally.kills} kills · {tally.stalls} stalls · {cuts} cuts · "
        f"{restarts} restarts · {tally.disk_full} × disk full"
    )


def end_line(end: Result | Restless) -> str:
    if isinstance(end, Restless):
        return f"{end.store} × {end.broker}: [red]no rest[/red]"
    books = "balanced" if end.books.balanced else f"[red]{end.books}[/red]"
    return progress_line(end.store, end.broker, f"{end.events:,} events in {end.seconds:.0f} s · {books}", end.tally)


def left_in_broker(result: Result) -> list[str]:
    """Nothing there: then it was mislaid before any worker had it, or acknowledged without its effect."""
    return [
        f"{result.store} × {result.broker}: when its time was up, {name} still held {count:,} messages"
        for name, count in result.left_in_broker.items()
    ]


def table(results: Sequence[Result]) -> Table:
    """A column per broker: so many figures are easier to read downwards."""
    table = Table(title="Chaos on real processes", caption_justify="left")
    table.add_column("")
    for result in results:
        table.add_column(f"{result.store}\n{result.broker}", justify="right")
    for heading, cells in _rows(results):
        table.add_row(heading, *cells, end_section=heading in ("unknown commits (there)", "disk full"))
    table.caption = "\n".join(
        f"{result.store} × {result.broker}: too little was done: {', '.join(result.shortfalls)}"
        for result in results
        if result.shortfalls
    )
    return table


def _rows(results: Sequence[Result]) -> list[tuple[str, list[str]]]:
    rows: dict[str, Callable[[Result], str]] = {
        "events": lambda r: f"{r.events:,}",
        "commands (refused)": lambda r: f"{r.commands:,} ({r.commands_refused})",
        "rolled back": lambda r: f"{r.rolled_back:,}",
        "unknown commits (there)": lambda r: f"{r.unknown} ({r.unknown_but_there})",
        "kill -9 (writers)": lambda r: f"{r.tally.kills} (+{r.tally.writer_kills})",
        "stalls: frozen + silent": lambda r: f"{r.tally.freezes} + {r.tally.silences}",
        "cuts from the database": lambda r: f"{r.tally.cuts:,}",
        "· in COMMIT: before / after": lambda r: f"{r.tally.commit_before} / {r.tally.commit_after}",
        "· in the mark: before / after": lambda r: f"{r.tally.mark_before} / {r.tally.mark_after}",
        "cuts from the broker": lambda r: f"{r.tally.broker_cuts:,}",
        "· in the confirm: before / after": lambda r: f"{r.tally.confirm_before} / {r.tally.confirm_after}",
        "· in the ack: before / after": lambda r: f"{r.tally.ack_before} / {r.tally.ack_after}",
        "restarts: database + broker": lambda r: f"{r.tally.restarts} + {_broker_restarts(r)}",
        "disk full": lambda r: f"{r.tally.disk_full} ({r.disk})",
        "lost": lambda r: _verdict(r.books.lost),
        "phantom": lambda r: _verdict(r.books.phantom),
        "out of order": lambda r: (
            _verdict(r.books.out_of_order) + ("" if r.in_order is None else f" of {r.in_order:,}")
        ),
        "· later, where not promised": lambda r: (
            "-" if r.out_of_order_unpromised is None else f"{r.out_of_order_unpromised}"
        ),
        "out of order on the wire": lambda r: _verdict(r.books.wire_out_of_order),
        "missing on the wire": lambda r: _verdict(r.books.wire_missing),
        "double effects": lambda r: _verdict(r.books.doubled),
        "commands in contradiction": lambda r: _verdict(r.books.commands_wrong),
        "domain events ≠ outbox": lambda r: _verdict(r.books.outbox_wrong),
        "read model ≠ outbox": lambda r: _verdict(r.books.read_model_wrong),
        "planted losses: left of": lambda r: f"{_verdict(r.books.unmended)} of {r.tally.losses}",
        "crashed by themselves": lambda r: _verdict(len(r.crashes)),
        "duplicates absorbed": lambda r: f"{r.wire_duplicates:,}",
        "takeover p99": lambda r: "-" if r.takeover_p99 is None else f"{r.takeover_p99:.2f} s",
        "seconds": lambda r: f"{r.seconds:.0f}",
    }
    return [(heading, [cell(result) for result in results]) for heading, cell in rows.items()]


def _broker_restarts(result: Result) -> str:
    return "not possible" if "broker_restarts" in result.not_possible else str(result.tally.broker_restarts)


def _verdict(count: int) -> str:
    return f"[red]{count}[/red]" if count else "[green]0[/green]"


def totals(results: Sequence[Result]) -> dict[str, int]:
    """Of what the scorecard asks for."""
    return {
        "events": sum(result.events for result in results),
        "kills": sum(result.tally.kills for result in results),
        "stalls": sum(result.tally.stalls for result in results),
        "cuts": sum(result.tally.cuts + result.tally.broker_cuts for result in results),
    }


def record(
    path: Path, seed: int, long: bool, seconds: float, results: Sequence[Result], restless: Sequence[Restless]
) -> None:
    told = {
        "seed": seed,
        "long": long,
        "total": totals(results) | {"seconds": round(seconds, 1)},
        "results": [result.told() for result in results],
        "not_at_rest": [[pair.store, pair.broker] for pair in restless],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
