"""What nobody may see in a payload: the rules of the application, and whatever is called a secret."""

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any

from postroad.errors import OperationRefused
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
        """What was hidden and left alone is what it was. Raises OperationRefused where nobody can tell what that is."""
        return _restored(edited, self(original), original, "payload")

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


def _restored(edited: Any, shown: Any, original: Any, place: str) -> Any:
    if edited == shown:
        return edited if shown == original else original
    if isinstance(edited, dict):
        shown, original = (one if isinstance(one, dict) else {} for one in (shown, original))
        return {
            name: _restored(value, shown.get(name), original.get(name), f"{place}.{name}")
            for name, value in edited.items()
        }
    if isinstance(edited, list):
        shown, original = (one if isinstance(one, list) else [] for one in (shown, original))
        if _is_hidden_in(edited):
            _check_same_entries(edited, shown, place)
        return [_restored(*one, f"{place}[{number}]") for number, one in enumerate(_beside(edited, shown, original))]
    if edited == HIDDEN or (shown != original and _is_hidden_in(edited)):
        raise OperationRefused(
            f"{place} is {edited!r}, and what is hidden there is not known. Leave it as it was, or write it whole."
        )
    return edited


def _beside(edited: list[Any], shown: list[Any], original: list[Any]) -> Iterator[tuple[Any, Any, Any]]:
    """Each entry with what it was, as far as there was one."""
    for number, one in enumerate(edited):
        yield one, *((shown[number], original[number]) if number < len(shown) else (None, None))


def _check_same_entries(edited: list[Any], shown: list[Any], place: str) -> None:
    """An entry's place is all that tells what is hidden in it."""
    moved = any(one != was and _is_hidden_in(one) and one in shown for one, was in zip(edited, shown, strict=False))
    if len(edited) != len(shown) or moved:
        raise OperationRefused(
            f"{place} had {len(shown)} entries, and what is hidden in one cannot be found any more once entries are "
            f"added, removed or moved. Leave them in their places, or write what is hidden as {HIDDEN} whole."
        )


def _is_hidden_in(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_is_hidden_in, value.values()))
    if isinstance(value, list):
        return any(map(_is_hidden_in, value))
    return isinstance(value, str) and HIDDEN in value
