"""The user's code, told from Postroad's, Python's and what is installed."""

import os
import sys
from collections.abc import Iterator
from types import TracebackType
from typing import Final

_INSTALLED: Final = ("site-packages", "dist-packages")


def is_pythons(module: str) -> bool:
    return module.partition(".")[0] in sys.stdlib_module_names and module != "__main__"


def is_ours(module: str) -> bool:
    return module.partition(".")[0] == "postroad"


def is_theirs(module: str | None) -> bool:
    if not module or is_ours(module) or is_pythons(module):
        return False
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    return not any(part in file for part in _INSTALLED)


def place_of(error: BaseException) -> str:
    """The last line of theirs on the way to the error, as `shop.py:12 in charge`; empty if there is none."""
    places = [
        f"{_near(link.tb_frame.f_code.co_filename)}:{link.tb_lineno} in {link.tb_frame.f_code.co_name}"
        for link in _links(error.__traceback__)
        if is_theirs(_module_of(link))
    ]
    return places[-1] if places else ""


def shown_from_theirs_on(error: BaseException) -> BaseException:
    """Also what it came from: the way through us, and through whatever we called, tells them nothing."""
    one: BaseException | None = error
    while one is not None:
        one.__traceback__ = _from_theirs_on(one.__traceback__)
        one = one.__cause__ or one.__context__
    return error


def _from_theirs_on(trace: TracebackType | None) -> TracebackType | None:
    """None if their code was not called."""
    links = list(_links(trace))
    theirs = [number for number, link in enumerate(links) if is_theirs(_module_of(link))]
    kept = None
    for link in reversed(links[theirs[0] :] if theirs else []):
        if not is_ours(_module_of(link)):
            kept = TracebackType(kept, link.tb_frame, link.tb_lasti, link.tb_lineno)
    return kept


def _links(trace: TracebackType | None) -> Iterator[TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _module_of(link: TracebackType) -> str:
    return str(link.tb_frame.f_globals.get("__name__", ""))


def _near(file: str) -> str:
    below = os.path.abspath(file).removeprefix(os.getcwd() + os.sep)
    return file if os.path.isabs(below) else below
