"""What nobody may see in a payload: the rules of the application, and whatever is called a secret."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

from postroad.redact import HIDDEN, redact_values


class Mask:
    """A rule is a field's name, at any depth, or a dotted path; * stands for any part: `card`, `customer.*.email`."""

    def __init__(self, rules: Sequence[str] = ()) -> None:
        self.rules = tuple(rule.lower() for rule in rules)

    def __call__(self, payload: Any) -> Any:
        if isinstance(payload, bytes):
            # Nobody can tell what is in them.
            return None if self.rules else payload
        return redact_values(self._hide(payload, ""))

    def restore(self, edited: Any, original: Any) -> Any:
        """What was hidden and left alone is what it was."""
        if edited == HIDDEN:
            return original
        if isinstance(edited, dict) and isinstance(original, dict):
            return {name: self.restore(value, original.get(name)) for name, value in edited.items()}
        if isinstance(edited, list) and isinstance(original, list):
            rest = [None] * max(0, len(edited) - len(original))
            return [self.restore(one, was) for one, was in zip(edited, [*original, *rest], strict=False)]
        return edited

    def _hide(self, value: Any, path: str) -> Any:
        if isinstance(value, dict):
            return {
                name: HIDDEN if self._hidden(str(name), f"{path}{name}") else self._hide(one, f"{path}{name}.")
                for name, one in value.items()
            }
        if isinstance(value, list):
            return [self._hide(one, f"{path}{place}.") for place, one in enumerate(value)]
        return value

    def _hidden(self, name: str, path: str) -> bool:
        return any(fnmatchcase(path.lower() if "." in rule else name.lower(), rule) for rule in self.rules)
