"""YAML, safely: no objects, no key twice, and of a mistake only its place is told. Its line may hold a secret."""

import re
from typing import Any

import yaml

from postroad.errors import ConfigurationError
from postroad.redact import one_line


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    raise _Twice(key.value, key.start_mark.line + 1)
                seen.add(key.value)
        return super().construct_mapping(node, deep)


class _Twice(yaml.YAMLError):
    def __init__(self, key: str, line: int) -> None:
        super().__init__(key, line)
        self.key, self.line = key, line


def read_yaml(data: bytes, name: str) -> dict[str, Any]:
    """Raises ConfigurationError; the top must be a mapping, or nothing at all."""
    try:
        found = yaml.load(data, Loader=_Loader)
    except _Twice as twice:
        raise ConfigurationError(
            f"{name}, line {twice.line}: the key {one_line(twice.key)[:80]!r} stands there twice. Keep one of them."
        ) from None
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{name}{_place(error)} is no YAML{_problem(error)}.") from None
    except (ValueError, RecursionError, AttributeError, TypeError):
        # A date like 2025-99-99, digits by the thousand, or brackets by the thousand.
        raise ConfigurationError(f"{name} is no YAML that can be read.") from None
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise ConfigurationError(f"{name} is a {type(found).__name__}, not a mapping of keys to values.")
    return found


def _place(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    return f", line {mark.line + 1}, column {mark.column + 1}," if mark else ""


def _problem(error: yaml.YAMLError) -> str:
    """Without what it quotes: an alias that is not defined may be a password that begins with a star."""
    problem = re.split("['\"`<]", getattr(error, "problem", None) or "")[0].strip()
    return f": {one_line(problem)}" if problem else ""
