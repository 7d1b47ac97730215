"""One change that old messages, or old readers, would not survive."""

from dataclasses import dataclass
from typing import Final

RULES: Final = {
    "schema-removed": "was removed with its file",
    "message-removed": "was removed",
    "field-removed": "was removed; stop writing it, but leave it in the schema",
    "field-number-changed": "changed its number",
    "field-renamed": "changed its name",
    "field-type-changed": "changed its type",
    "field-label-changed": "changed its label",
    "field-became-required": "became required, which messages written before cannot satisfy",
    "field-became-optional": "is not required any more, but readers that know it so refuse messages without it",
    "required-field-added": "is new and required, which messages written before cannot satisfy",
    "field-default-changed": "changed its default",
    "field-oneof-changed": "moved into, out of or between oneofs",
    "oneof-removed": "was removed",
    "enum-removed": "was removed",
    "enum-value-removed": "was removed",
    "enum-value-renamed": "changed its name",
    "reserved-removed": "is not reserved any more, so that it could be used again for something else",
    "syntax-changed": "changed its syntax",
    "object-closed": "takes no further fields any more",
}


@dataclass(frozen=True, slots=True, order=True)
class Break:
    file: str
    """Where the old one stands."""
    message: str
    field: str
    """A field, enum value or oneof by name, or what is reserved; empty for the message as a whole."""
    rule: str
    detail: str = ""
    """From what to what."""

    @property
    def text(self) -> str:
        return f"{self.field or self.message} {RULES[self.rule]}{f' ({self.detail})' if self.detail else ''}"
