"""The naming rules. A check returns the name, or raises InvalidName with the broken rule and an obvious cure.

topic          catalog.video.events                    <domain>.<aggregate>.<category>, or <context>.events
subscription   catalog.video.events.search-indexer     <topic>.<service>-<role>, or <topic>.<service>
event type     video.created · Genesis.Session.Started · VideoPublished · ORDER_CREATED
command        Command.Genesis.Session.Start           Command.<Domain>.<Aggregate>[.<Entity>].<Action>
"""

import re
from collections.abc import Callable, Collection, Iterable
from typing import Final

from postroad.errors import InvalidName
from postroad.tense import is_imperative, is_past, past_of, same_word

CATEGORIES: Final = ("events", "commands", "queries")
DEAD_LETTERS: Final = ".dlq"
_ENVIRONMENTS: Final = """
    dev develop development test testing tst staging stg preprod pre-prod prod production prd uat qa
    local localhost sandbox
"""
ENVIRONMENTS: Final = frozenset(_ENVIRONMENTS.split())

# A subscription (topic, dot, group of 64) must still fit in Kafka's 249 characters.
_MAX_TOPIC: Final = 180
_MAX_GROUP: Final = 64
_MAX_TYPE: Final = 128
_MAX_IDENTIFIER: Final = 63

_SEGMENT: Final = r"[a-z0-9]+(?:-[a-z0-9]+)*"
_GROUP: Final = re.compile(_SEGMENT)
_LOOSE_GROUP: Final = re.compile(r"[A-Za-z0-9]+(?:[._-][A-Za-z0-9]+)*")
_PASCAL: Final = r"[A-Z][A-Za-z0-9]*"
_DOTTED_PASCAL: Final = re.compile(rf"{_PASCAL}(?:\.{_PASCAL})+")
_EVENT_FORMS: Final = re.compile(
    rf"[a-z][a-z0-9_-]*(?:\.[a-z0-9_-]+)+|{_PASCAL}|[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+|{_DOTTED_PASCAL.pattern}"
)
_AGGREGATE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_IDENTIFIER: Final = re.compile(r"(?:[A-Za-z_][A-Za-z0-9_]*\.)?[A-Za-z_][A-Za-z0-9_]*")


def check_topic(name: str) -> str:
    _require_text("topic", name)
    if fault := _topic_fault(name):
        raise InvalidName("topic", name, fault + _suggestion(name))
    return name


def check_dead_letter_topic(name: str) -> str:
    """A topic's own name with `.dlq` behind it."""
    _require_text("dead-letter topic", name)
    topic = name.removesuffix(DEAD_LETTERS)
    if topic == name:
        raise InvalidName("dead-letter topic", name, f"must end with {DEAD_LETTERS}.")
    if fault := _topic_fault(topic):
        raise InvalidName("dead-letter topic", name, fault + _suggestion(topic))
    return name


def check_subscription(name: str) -> str:
    _require_text("subscription", name)
    topic, _, service = name.rpartition(".")
    form = "must be <topic>.<service>-<role> or <topic>.<service>; "
    if fault := _topic_fault(topic):
        raise InvalidName("subscription", name, f"{form}its topic {topic!r} {fault}")
    if fault := _group_fault(service):
        raise InvalidName("subscription", name, f"{form}its service {service!r} {fault}")
    return name


def check_group(name: str, *, on_broker: bool = True) -> str:
    """On a broker a group becomes part of a subscription's name; in process it may also be `ORDER`."""
    _require_text("group", name)
    if on_broker:
        fault = _group_fault(name)
    else:
        fault = _length_fault(name, _MAX_GROUP)
        if not fault and not _LOOSE_GROUP.fullmatch(name):
            fault = "may have letters and digits, with single dots, hyphens and underscores between them."
    if fault:
        raise InvalidName("group", name, fault)
    return name


def check_event_type(name: str) -> str:
    """Any of the accepted forms. Dotted Pascal names follow the domain events' rules, tense included."""
    _require_text("event type", name)
    if _DOTTED_PASCAL.fullmatch(name):
        return check_domain_event(name)
    if fault := _length_fault(name, _MAX_TYPE):
        raise InvalidName("event type", name, fault)
    if not _EVENT_FORMS.fullmatch(name):
        raise InvalidName(
            "event type", name, "must look like order.placed, Shop.Order.Placed, OrderPlaced or ORDER_PLACED."
        )
    return name


def check_domain_event(name: str) -> str:
    """`Genesis.Session.Started`: Domain.Aggregate[.Entity].Action, the action in the past tense."""
    kind = "event type"
    _require_text(kind, name)
    if name.startswith("Command."):
        raise InvalidName(kind, name, "is a command's name; an event's does not begin with 'Command.'.")
    action = _action(kind, name, name, "Genesis.Session.Started")
    if not is_past(action):
        cure = name.removesuffix(action) + past_of(action)
        raise InvalidName(kind, name, f"must end in the past tense, because an event has happened. Use {cure!r}.")
    return name


def check_command(name: str) -> str:
    """`Command.Genesis.Session.Start`: an order, not yet a fact."""
    _require_text("command", name)
    if not name.startswith("Command."):
        raise InvalidName("command", name, "must begin with 'Command.', such as 'Command.Genesis.Session.Start'.")
    action = _action("command", name, name.removeprefix("Command."), "Command.Genesis.Session.Start")
    if not is_imperative(action):
        raise InvalidName("command", name, "must end in the imperative, such as Start, not Started.")
    return name


def event_of(command: str) -> str:
    """`Command.Genesis.Session.Start` → `Genesis.Session.Started`."""
    stem, _, action = check_command(command).removeprefix("Command.").rpartition(".")
    return f"{stem}.{past_of(action)}"


def map_faults(events: dict[str, str]) -> list[InvalidName]:
    """Everything wrong in a map from command to event: names, and pairs that do not belong together."""
    faults = []
    for command, event in events.items():
        try:
            expected = event_of(command)
            check_domain_event(event)
        except InvalidName as fault:
            faults.append(fault)
            continue
        if not same_word(event, expected):
            faults.append(InvalidName("event type", event, f"does not follow from {command!r}. Use {expected!r}."))
    return faults


def eventless(commands: Iterable[str], events: Collection[str]) -> list[InvalidName]:
    """The commands whose event is not among these."""
    expected = {command: event_of(command) for command in commands}
    return [
        InvalidName("command", command, f"has no event of its own. Declare {event!r} with @event.")
        for command, event in expected.items()
        if not any(same_word(event, known) for known in events)
    ]


def check_aggregate(name: str) -> str:
    """The aggregate's type: `order`, `Order`, `order-line`."""
    _require_text("aggregate", name)
    if fault := _length_fault(name, 64):
        raise InvalidName("aggregate", name, fault)
    if not _AGGREGATE.fullmatch(name):
        raise InvalidName("aggregate", name, "must begin with a letter and have only letters, digits, '.', '_', '-'.")
    return name


def check_identifier(name: str) -> str:
    """A table's name, with or without its schema, that needs no quoting in any store."""
    _require_text("table", name)
    if not _IDENTIFIER.fullmatch(name):
        raise InvalidName("table", name, "must have only letters, digits and underscores, as table or schema.table.")
    if any(len(part) > _MAX_IDENTIFIER for part in name.split(".")):
        raise InvalidName("table", name, f"has a part longer than {_MAX_IDENTIFIER} characters.")
    return name


def _require_text(kind: str, name: object) -> None:
    if not isinstance(name, str):
        raise InvalidName(kind, name, f"must be text, is {type(name).__name__}.")


def _topic_fault(name: str) -> str:
    """The first broken rule, in the order in which a reader would notice them."""
    segments = name.split(".")
    if fault := _length_fault(name, _MAX_TOPIC):
        return fault
    if "_" in name:
        return "must not contain underscores; separate segments with dots, words with hyphens."
    if name != name.lower():
        return "must be lower-case."
    if not all(_GROUP.fullmatch(segment) for segment in segments):
        return "must be made of letters a-z, digits and dots, with single hyphens inside a segment."
    if environments := ENVIRONMENTS.intersection(segments):
        return f"must not name an environment ({min(environments)}); each environment has its own broker."
    if len(segments) > 3:
        return f"has {len(segments)} segments, at most 3 are allowed: <domain>.<aggregate>.<category>."
    if segments[-1] not in CATEGORIES:
        return "must end with .events, .commands or .queries."
    if len(segments) == 1 or (len(segments) == 2 and segments[-1] != "events"):
        return "must be <domain>.<aggregate>.<category>, or <context>.events."
    if not name[0].isalpha() or name.startswith("goog"):
        return "must begin with a letter, and not with 'goog': Pub/Sub takes no other."
    return ""


def _suggestion(name: str) -> str:
    """A topic near this one that keeps every rule, if there is one."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    without_environment = [s for s in words.split(".") if s not in ENVIRONMENTS]
    words = ".".join(without_environment)
    repairs: tuple[Callable[[str], str], ...] = (
        lambda topic: topic,
        lambda topic: re.sub(r"(event|command|quer)(?:y)?$", _plural, topic),
        lambda topic: topic if topic.endswith(CATEGORIES) else f"{topic}.events",
    )
    for separator in (".", "-"):
        for repair in repairs:
            candidate = repair(words.replace("_", separator))
            if not _topic_fault(candidate):
                return f" Use {candidate!r}."
    return ""


def _plural(match: re.Match[str]) -> str:
    return "queries" if match[1] == "quer" else f"{match[1]}s"


def _group_fault(name: str) -> str:
    if fault := _length_fault(name, _MAX_GROUP):
        return fault
    if _GROUP.fullmatch(name):
        return ""
    cure = re.sub(r"[^a-z0-9]+", "-", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower()).strip("-")
    return "must be made of lower-case letters and digits with single hyphens between." + (
        f" Use {cure!r}." if cure else ""
    )


def _length_fault(name: str, limit: int) -> str:
    if not name:
        return "must not be empty."
    return f"must not be longer than {limit} characters." if len(name) > limit else ""


def _action(kind: str, name: str, levels: str, example: str) -> str:
    if fault := _length_fault(name, _MAX_TYPE):
        raise InvalidName(kind, name, fault)
    if not _DOTTED_PASCAL.fullmatch(levels) or not 3 <= levels.count(".") + 1 <= 4:
        raise InvalidName(
            kind, name, f"must be Domain.Aggregate[.Entity].Action in capitalised words, such as {example!r}."
        )
    return levels.rpartition(".")[2]
