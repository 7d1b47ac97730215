"""Where settings come from: a file or a mapping, and above it the environment."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from postroad.errors import ConfigurationError, InvalidSetting, MissingExtra
from postroad.settings.model import Settings
from postroad.settings.read import read

_VARIABLES: Final = {
    "DATABASE_URL": ("database_url",),
    "BROKER_URL": ("broker_url",),
}
_PUBSUB_VARIABLES: Final = {
    "GCP_PROJECT_ID": ("pubsub", "project_id"),
    "PUBSUB_EMULATOR_HOST": ("pubsub", "emulator_host"),
}
_TOPIC: Final = "PUBSUB_TOPIC_"
_SUBSCRIPTION: Final = "PUBSUB_SUB_"

Source = str | os.PathLike[str] | Mapping[str, Any] | None


def load(source: Source = None, environment: Mapping[str, str] | None = None) -> Settings:
    """The settings of a YAML file or a mapping (none at all: of the environment alone).

    Raises InvalidSetting, with the key's path, for what is unknown, missing or wrong.
    """
    plain = _copied(source) if isinstance(source, Mapping) else _file(source)
    _refuse_two_brokers(plain)
    given = {name: value for name, value in (os.environ if environment is None else environment).items() if value}
    variables = _variables(plain, given)
    for variable, path in variables.items():
        _put(plain, path, given[variable])
    try:
        return read(Settings, plain)
    except InvalidSetting as error:
        for variable, path in variables.items():
            if ".".join(path) == error.path:
                raise InvalidSetting(error.path, f"(from {variable}) {error.rule}") from None
        raise


def _copied(given: Mapping[str, Any], depth: int = 4) -> dict[str, Any]:
    """As deep as the environment reaches: the caller's own mapping stays as it is."""
    return {
        name: _copied(value, depth - 1) if depth and isinstance(value, Mapping) else value
        for name, value in given.items()
    }


def _refuse_two_brokers(plain: Mapping[str, Any]) -> None:
    pubsub = plain.get("pubsub")
    has = {
        "broker_url": "broker_url" in plain,
        "rabbitmq": "rabbitmq" in plain,
        "pubsub.project_id": isinstance(pubsub, Mapping) and "project_id" in pubsub,
    }
    first, *others = [*(name for name, there in has.items() if there), ""]
    if others and others[0]:
        raise InvalidSetting(first, f"cannot stand beside {others[0]}: a service has one broker. Remove one of them.")


def _file(place: "str | os.PathLike[str] | None") -> dict[str, Any]:
    if place is None:
        return {}
    try:
        from postroad.settings.yaml import read_yaml
    except ModuleNotFoundError:
        raise MissingExtra("PyYAML", "yaml") from None
    try:
        return read_yaml(Path(place).read_bytes(), os.fspath(place))
    except OSError as error:
        raise ConfigurationError(f"{os.fspath(place)} cannot be read: {error.strerror}.") from None


def _variables(plain: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Which variables count, and for which key. Those of Pub/Sub do not where the settings name another broker, or
    nobody names a project: every process in that cloud, or beside an emulator, may have them."""
    known: dict[str, tuple[str, ...]] = {**_VARIABLES}
    if "pubsub" in plain or ("GCP_PROJECT_ID" in given and not {"rabbitmq", "broker_url"} & plain.keys()):
        known |= _PUBSUB_VARIABLES
        for variable in sorted(given):
            name = variable.removeprefix(_TOPIC).removeprefix(_SUBSCRIPTION).lower()
            if variable.startswith(_TOPIC) and name:
                known[variable] = "pubsub", "topics", name
            elif variable.startswith(_SUBSCRIPTION) and name and not _is_elsewhere(plain, name, given[variable]):
                known[variable] = "pubsub", "subscriptions", name, "subscription_id"
    return {variable: path for variable, path in known.items() if variable in given}


def _is_elsewhere(plain: Mapping[str, Any], name: str, subscription_id: str) -> bool:
    """Whether the file has this subscription already, under another name."""
    pubsub = plain.get("pubsub")
    subscriptions = pubsub.get("subscriptions") if isinstance(pubsub, dict) else None
    if not isinstance(subscriptions, dict) or name in subscriptions:
        return False
    return any(
        isinstance(one, dict) and one.get("subscription_id") == subscription_id for one in subscriptions.values()
    )


def _put(plain: Any, path: tuple[str, ...], value: str) -> None:
    """What is no mapping is left as it is, to be refused."""
    for step in path[:-1]:
        if not isinstance(plain, dict):
            return
        plain = plain.setdefault(step, {})
    if isinstance(plain, dict):
        plain[path[-1]] = value
