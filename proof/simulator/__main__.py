"""`python -m proof.simulator`: many seeds, or one of them step by step."""

import argparse
import os
import sys
from pathlib import Path

from proof.options import at_least, need_packages, need_place, refuse_ignored
from proof.simulator.scene import BROKERS, STORES, Scene

_SEEDS = 5_000
_SERVER = "POSTROAD_TEST_POSTGRESQL_URL"


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    need_place(options.json)
    # Every third seed is RabbitMQ's, and its adapter is loaded before it is known which one comes.
    need_packages(["rabbitmq", options.broker or "embedded", options.store])
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets of text differs from process to process; a seed must mean the same everywhere.
        os.execve(
            sys.executable,
            [sys.executable, "-m", "proof.simulator", *(arguments if arguments is not None else sys.argv[1:])],
            os.environ | {"PYTHONHASHSEED": "0"},
        )
    from proof.simulator import seeds  # needs the libraries

    seeds.be_quiet()
    scene = Scene(options.store, options.broker)
    if options.seed is not None:
        return seeds.tell(scene, options.seed, options.only, options.trace, shrinking=False)
    first = options.first or 0
    chosen = range(first, first + (options.seeds or _SEEDS))
    if options.crash_points:
        return seeds.crash_points(scene, chosen)
    return seeds.run_many(scene, chosen, options.jobs or os.cpu_count() or 1, options.json)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m proof.simulator", description=__doc__)
    parser.add_argument("--seeds", type=at_least(1), metavar="N", help=f"how many; {_SEEDS:,} if not given")
    parser.add_argument("--first", type=at_least(0), metavar="SEED", help="beginning with this one; 0 if not given")
    parser.add_argument(
        "--store",
        choices=STORES,
        default="sqlite",
        help="whose code and whose database; a server's address is that of the tests",
    )
    parser.add_argument(
        "--broker",
        choices=BROKERS,
        help="whose adapter; if not given, the seed says whether it is RabbitMQ's or the embedded broker's",
    )
    parser.add_argument("--jobs", type=at_least(1), metavar="N", help="processes; one per core if not given")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file")
    parser.add_argument("--crash-points", action="store_true", help="where processes were killed, and where never")
    parser.add_argument("--seed", type=at_least(0), metavar="SEED", help="only this one, and the faults in it")
    parser.add_argument(
        "--only", type=at_least(1), nargs="*", metavar="N", help="with --seed: just the faults of these numbers happen"
    )
    parser.add_argument("--trace", action="store_true", help="with --seed: every step, not the faults alone")
    options = parser.parse_args(arguments)
    _refuse_what_contradicts(parser, options)
    return options


def _refuse_what_contradicts(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    if options.seed is not None:
        many = ("seeds", "first", "jobs", "json", "crash_points")
        refuse_ignored(parser, options, many, "--seed tells one seed. Leave out one or the other.")
    else:
        refuse_ignored(parser, options, ("only", "trace"), "only for one seed. Name it with --seed.")
    if options.crash_points:
        of_many_seeds = ("jobs", "json", "broker")
        why = "--crash-points has one process, the embedded broker and no figures. Leave out one or the other."
        refuse_ignored(parser, options, of_many_seeds, why)
    if options.store == "postgresql" and not os.environ.get(_SERVER):
        cure = 'Run: scripts/services up postgresql; eval "$(scripts/services env)"'
        parser.error(f"--store postgresql: {_SERVER} names no server. {cure}")


if __name__ == "__main__":
    sys.exit(main())
