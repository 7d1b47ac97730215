"""Named SQL. A store's `-- name:` files, completed by the shared ones where one text serves all."""

import re
from collections.abc import Mapping
from functools import cache
from importlib import resources

from postroad.errors import ConfigurationError

_NAME = re.compile(r"^-- name: (\w+)[ \t]*$", re.MULTILINE)
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_PARAMETER = re.compile(r"'[^']*'|--[^\n]*|(?<![:\w]):(\w+)")
"""A parameter is group 1; literals and comments are matched too, so that nothing inside them is."""


@cache
def load(dialect: str) -> Mapping[str, str]:
    """All of a store's statements by name, still with their `{table}` and `{column}` placeholders."""
    found: dict[str, str] = {}
    for folder in ("shared", dialect):
        for file in sorted(resources.files(__package__).joinpath(folder).iterdir(), key=lambda f: f.name):
            if file.name.endswith(".sql"):
                read = parse(file.read_text(encoding="utf-8"))
                if twice := sorted(found.keys() & read.keys()):
                    raise ConfigurationError(f"Two statements for {dialect} have the name {twice[0]}. Rename one.")
                found |= read
    return found


def parse(text: str) -> dict[str, str]:
    parts = _NAME.split(text)
    return {name: body.strip().removesuffix(";") for name, body in zip(parts[1::2], parts[2::2], strict=True)}


def fill(sql: str, names: Mapping[str, str]) -> str:
    """Put quoted identifiers in for the placeholders."""

    def substitute(match: re.Match[str]) -> str:
        try:
            return names[match[1]]
        except KeyError:
            raise ConfigurationError(f"SQL placeholder {{{match[1]}}} has no name to stand for.") from None

    return _PLACEHOLDER.sub(substitute, sql)


@cache
def parameters(sql: str) -> tuple[str, ...]:
    """The `:name` parameters in order of first use."""
    return tuple(dict.fromkeys(name for name in _PARAMETER.findall(sql) if name))


def restyle(sql: str, style: str) -> str:
    """`:name` parameters as `%(name)s` (pyformat) or `$1` (numbered, in the order of `parameters`)."""
    order = {name: position for position, name in enumerate(parameters(sql), 1)}

    def restyled(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0]
        return f"${order[match[1]]}" if style == "numbered" else f"%({match[1]})s"

    return _PARAMETER.sub(restyled, sql if style == "numbered" else sql.replace("%", "%%"))
