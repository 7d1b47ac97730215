"""--last: what was found the last time, by whomever, instead of looking again."""

from datetime import datetime
from typing import Any, TypeVar

import click

from postroad.cli.output import Output
from postroad.errors import OperationRefused, StoreError
from postroad.operations import results, this_user
from postroad.stores import Store

F = TypeVar("F")
last_option = click.option("--last", is_flag=True, help="Show what was found the last time, here or on the dashboard.")


async def kept(out: Output, store: Store, kind: str, shape: type[F]) -> tuple[datetime, str, F]:
    found = await results.last(store, kind, shape)
    if found is None:
        raise OperationRefused(f"There is no last {kind} yet. Run: postroad {kind}")
    at, actor, _ = found
    out.say(f"found {at:%F %T}Z by {actor}", "dim")
    return found


async def keep(out: Output, store: Store, kind: str, found: Any) -> None:
    try:
        await results.keep(store, kind, found, actor=this_user())
    except StoreError as error:
        # Who may only read, or asks a replica, shall see what was found all the same.
        out.say(f"The dashboard will not show this: {error}", "dim")
