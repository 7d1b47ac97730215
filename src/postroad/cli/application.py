"""From `shop:road` to the Postroad of the user's module, or a message that says what is wrong with it."""

import os
import sys
import sysconfig
import traceback
import warnings
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Final

import click

from postroad.app import Postroad
from postroad.errors import ConfigurationError, PostroadError, StoreError, WriteRefused
from postroad.redact import redact, remember

_OURS: Final = str(Path(__file__).parents[1])
_LIBRARIES: Final = tuple(sysconfig.get_paths()[kind] for kind in ("stdlib", "purelib", "platlib"))
_LOOPS: Final = tuple(os.path.join(root, name, "") for root in _LIBRARIES for name in ("asyncio", "anyio", "uvloop"))
"""Where event loops are started, by whatever call."""


class UserCodeFailed(click.ClickException):
    """The user's own module raised; it is told with the user's own traceback."""

    def __init__(self, message: str, trace: str) -> None:
        super().__init__(message)
        self.trace = trace


def load(reference: str) -> Postroad:
    """The Postroad at `module:attribute`, looked for in the working directory first."""
    road = _attribute(*_place(reference))
    for url in (road.database_url, road.broker_url):
        remember(url)
    return road


def find(reference: str) -> object:
    """Whatever is at `module:attribute`."""
    module, path = _place(reference)
    try:
        return attrgetter(path)(module)
    except AttributeError:
        raise ConfigurationError(f"{module.__name__} has no attribute {path!r}. Check its name.") from None


def _place(reference: str) -> tuple[ModuleType, str]:
    module_name, colon, attribute = reference.partition(":")
    if not colon or not module_name or not attribute:
        raise ConfigurationError(
            f"{reference!r} does not say where the application is. Write module:attribute, such as shop:road."
        )
    if not all(part.isidentifier() for part in module_name.split(".")):
        raise ConfigurationError(
            f"{module_name!r} is no module's name. Write it as in `import`, such as shop or my.shop."
        )
    return _module(module_name), attribute


def _module(name: str) -> ModuleType:
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise _failed(name, error) from None  # another module, which theirs imports
        raise ConfigurationError(_no_module(name, here)) from None
    except SystemExit:
        raise ConfigurationError(
            f'{name} ended the program while it was being imported. Put what it runs under: if __name__ == "__main__":'
        ) from None
    except Exception as error:
        raise _failed(name, error) from None


def _no_module(name: str, here: str) -> str:
    files = [path.stem for path in Path(here).glob("*.py")]
    packages = [path.parent.name for path in Path(here).glob("*/__init__.py")]
    near = get_close_matches(name, files + packages, n=1)
    cure = f"Did you mean {near[0]!r}?" if near else "Run the command where the module is, or install it."
    return f"There is no module {name!r} in {here} or on Python's path. {cure}"


def _failed(name: str, error: Exception) -> UserCodeFailed:
    """Without the frames of the import machinery and of ours: the first line shown is the user's."""
    trace = error.__traceback__
    while trace is not None and _is_foreign(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    frames = traceback.extract_tb(trace)
    if isinstance(error, PostroadError):
        # Our own errors say what is wrong; what is missing is where.
        told, text = f"{error}{_place_in(frames)}", ""
    else:
        told = f"{name} could not be imported: {type(error).__name__}: {error}"
        text = redact("".join(traceback.format_exception(type(error), error, trace)))
    if _acts(error, frames):
        # What could not begin would be told of once more in the end, in words that lead nowhere.
        warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
        told = told.removesuffix(".")
        told += f'. Importing {name} must not run it: put that call under `if __name__ == "__main__":`'
    return UserCodeFailed(told, text)


def _acts(error: Exception, frames: Sequence[traceback.FrameSummary]) -> bool:
    """Whether the module was at work, instead of only saying what there is."""
    in_a_loop = any(frame.filename.startswith(_LOOPS) for frame in frames)
    return in_a_loop or isinstance(error, StoreError | WriteRefused)


def _place_in(frames: Sequence[traceback.FrameSummary]) -> str:
    """The innermost of the user's own, however many libraries were called from there."""
    theirs = [frame for frame in frames if not _is_foreign(frame.filename)]
    own = [frame for frame in theirs if not frame.filename.startswith((*_LIBRARIES, "<"))] or theirs
    return f" (at {own[-1].filename}, line {own[-1].lineno})" if own else ""


def _is_foreign(filename: str) -> bool:
    return filename.startswith(("<frozen importlib", _OURS)) or f"{os.sep}importlib{os.sep}" in filename


def _attribute(module: ModuleType, path: str) -> Postroad:
    found: object = module
    for name in path.split("."):
        if not hasattr(found, name):
            raise ConfigurationError(f"{module.__name__} has no attribute {path!r}. {_suggestion(module, path)}")
        found = getattr(found, name)
    if not isinstance(found, Postroad):
        cause = f"{module.__name__}:{path} is a {type(found).__name__}, not a Postroad."
        raise ConfigurationError(f"{cause} {_suggestion(module, path)}")
    return found


def _suggestion(module: ModuleType, path: str) -> str:
    roads = [name for name, value in vars(module).items() if isinstance(value, Postroad)]
    if near := get_close_matches(path, roads, n=1, cutoff=0.5) or roads[:1]:
        return f"Did you mean {module.__name__}:{near[0]}?"
    return 'There is none in the module: write road = Postroad(source="shop").'
