"""What every broker's URL may suffer from."""

from collections.abc import Iterable
from difflib import get_close_matches
from urllib.parse import SplitResult, urlsplit

from postroad.errors import ConfigurationError


def unreadable() -> ConfigurationError:
    """Says nothing of what stands there: where a password is not quoted, any part of the URL may be a part of it."""
    return ConfigurationError(
        "The broker URL cannot be read. Its port must be a number up to 65535, and characters such as @ : / ? # [ ] in "
        "its user or password must be quoted: @ is %40."
    )


def split(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:
        pass
    raise unreadable()  # not in the place of the error before it, which may quote a part of the URL


def port_of(parts: SplitResult) -> int | None:
    try:
        return parts.port
    except ValueError:
        pass
    raise unreadable()


def unknown_option(name: str, query: str, known: Iterable[str]) -> ConfigurationError:
    if "@" in query:
        return unreadable()
    near = get_close_matches(name, known, n=1)
    cure = f"Did you mean {near[0]}?" if near else f"Known: {', '.join(known)}."
    return ConfigurationError(f"The broker URL has an unknown option {name!r}. {cure}")
