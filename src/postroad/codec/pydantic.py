"""Pydantic models as events. Imported only when one is used: Pydantic is an optional dependency."""

from typing import Final

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError

from postroad.codec.faithful import Unfaithful, Walk
from postroad.events import field_names

# Pydantic has JSON forms for many more types; whether one is faithful shows when it comes back.
_WALK: Final = Walk(foreign=True)


class PydanticForm:
    walk = _WALK

    def __init__(self, cls: type[BaseModel]) -> None:
        self._cls = cls

    def dump(self, event: BaseModel) -> bytes:
        try:
            return event.model_dump_json(by_alias=True, warnings="error").encode()
        except (PydanticSerializationError, ValueError) as error:
            raise _culprit(event, error) from None

    def load(self, data: bytes) -> object:
        try:
            return self._cls.model_validate_json(data, strict=True)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            raise Unfaithful(first["msg"], *first["loc"]) from None


def _culprit(event: BaseModel, error: Exception) -> Unfaithful:
    """The field that cannot be encoded; Pydantic does not always say which."""
    for attribute, name in (field_names(type(event)) or {}).items():
        try:
            event.model_dump_json(include={attribute}, warnings="error")
        except (PydanticSerializationError, ValueError):
            return Unfaithful("cannot be encoded as its declared type", name)
    return Unfaithful(f"cannot be encoded: {error}")
