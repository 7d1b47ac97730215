"""Event ids on the command line."""

from uuid import UUID

import click

from postroad.message import parse_id


def outbox_id(text: str) -> UUID | str:
    """Also another program's idea of an id: an adopted table may hold any text."""
    try:
        return parse_id(text)
    except ValueError:
        return text


def event_id(text: str) -> UUID:
    """A UUID or a ULID, whole."""
    try:
        return parse_id(text)
    except ValueError as error:
        raise click.BadParameter(f"{error}. Copy the whole id from the list.") from None
