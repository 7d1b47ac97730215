"""Every error Postroad raises. Each says the cause in one sentence and the cure in the next.

PostroadError
├── ConfigurationError         a setting, an argument or a registration is wrong: fix it and start again
│   ├── InvalidSetting         a setting is unknown, missing or has a bad value; names its path
│   ├── InvalidName            a topic, subscription, event, command or table name breaks a rule
│   ├── MissingExtra           a driver or broker library is not installed
│   ├── SubscriptionMissing    the broker has no place for this group in this topic
│   └── SecondWriter           a handler on SQLite writes through a session of its own
├── WriteRefused               nothing was stored: the event may not enter the outbox
│   ├── NoTransaction          `add` was called outside a transaction
│   ├── InvalidPayload         a value cannot travel faithfully; names the field path
│   ├── MessageTooLarge        the encoded event is larger than the broker takes
│   └── VersionConflict        the aggregate has already reached this version
├── StoreError                 the database said no
│   ├── StoreUnavailable       it cannot be reached, or the connection broke
│   ├── StoreBusy              deadlock or lock wait: the same call may succeed when repeated
│   └── SchemaMissing          Postroad's tables are not there (or not the current ones)
├── BrokerError
│   ├── BrokerUnavailable      it cannot be reached; costs no attempt
│   └── UnsupportedByBroker    the broker cannot do this; names the feature
├── HandlingError              raised by handlers to say how their failure is to be treated
│   ├── TransientError         try again later (any other exception counts as this too)
│   │   └── VersionGap         a change that builds on a version which the projection has not seen
│   ├── BusinessError          handled with a "no": recorded in the inbox, not retried
│   │   └── CommandRefused     a command is answered with a "no": recorded in the command box, not retried
│   │       ├── InvalidCommand     its payload cannot be stored or read
│   │       ├── ValidationFailed   its `validate` objects
│   │       ├── AggregateNotFound  what it is about is not there
│   │       └── PermissionDenied   whoever asked may not
│   └── PoisonError            can never be handled: straight to the dead letters
│       ├── UnreadableMessage  the payload or an attribute cannot be parsed
│       ├── UnknownEventType   nobody here knows this type
│       └── UnknownVersion     no upcaster leads from this schema version to a known one
├── LeaseLost                  somebody else took over; what was done has been rolled back
├── ConsumeFailed              the attempt that was waited for has failed elsewhere
├── ConsumeConflict            the same event id arrived with another type
├── CommandStillProcessing     somebody is at this command right now: ask again later
├── CommandConflict            the same command id stands for another command
└── OperationRefused           what a person asked for does not fit the state of its subject; nothing was done
"""


class PostroadError(Exception):
    """Base of all errors raised by Postroad."""


class ConfigurationError(PostroadError):
    pass


class InvalidSetting(ConfigurationError):
    def __init__(self, path: str, rule: str) -> None:
        super().__init__(f"{path}: {rule}")
        self.path, self.rule = path, rule


class InvalidName(ConfigurationError):
    """A name breaks one of the naming rules."""

    def __init__(self, kind: str, name: object, rule: str) -> None:
        super().__init__(f"{kind} name {name!r}: {rule}")
        self.kind, self.name, self.rule = kind, name, rule


class MissingExtra(ConfigurationError):
    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} is not installed. Run: pip install 'postroad[{extra}]'")
        self.extra = extra


class SubscriptionMissing(ConfigurationError):
    def __init__(self, name: str, near: str = "") -> None:
        cure = f"Did you mean {near!r}?" if near else "Run: postroad topology apply"
        super().__init__(f"Subscription {name!r} does not exist. {cure}")
        self.name = name


class SecondWriter(ConfigurationError):
    def __init__(self) -> None:
        super().__init__(
            "The handler writes through a session of its own, and SQLite has one writer at a time: it would wait for "
            "itself. Take `session` as an argument of the handler and write through it."
        )


class WriteRefused(PostroadError):
    pass


class NoTransaction(WriteRefused):
    pass


class InvalidPayload(WriteRefused):
    def __init__(self, event_type: str, path: str, rule: str) -> None:
        super().__init__(f"{event_type}: field {path}: {rule}")
        self.event_type, self.path, self.rule = event_type, path, rule


class MessageTooLarge(WriteRefused):
    def __init__(self, event_type: str, size: int, limit: int, path: str = "", path_size: int = 0) -> None:
        most = f"; field {path} alone has {path_size:,}" if path_size else ""
        super().__init__(
            f"{event_type}: the message is {size:,} bytes, the broker takes {limit:,}{most}. "
            "Send a reference to the data instead of the data."
        )
        self.size, self.limit, self.path, self.path_size = size, limit, path, path_size


class VersionConflict(WriteRefused):
    def __init__(self, aggregate_type: str, aggregate_id: str, version: int | None) -> None:
        told = "this version" if version is None else f"version {version}"
        super().__init__(
            f"{aggregate_type} {aggregate_id!r} has already reached {told}. "
            "Roll back, read the aggregate again and repeat."
        )
        self.aggregate_type, self.aggregate_id, self.version = aggregate_type, aggregate_id, version


class StoreError(PostroadError):
    pass


class StoreUnavailable(StoreError):
    pass


class StoreBusy(StoreError):
    pass


class SchemaMissing(StoreError):
    pass


class BrokerError(PostroadError):
    pass


class BrokerUnavailable(BrokerError):
    pass


class UnsupportedByBroker(BrokerError):
    def __init__(self, broker: str, feature: str, instead: str = "") -> None:
        super().__init__(f"The {broker} broker has no {feature}.{' ' + instead if instead else ''}")
        self.feature = feature


class HandlingError(PostroadError):
    pass


class TransientError(HandlingError):
    pass


class VersionGap(TransientError):
    def __init__(self, projection: str, key: object, stored: int, version: int) -> None:
        missing = (
            f"version {version - 1} is" if version == stored + 2 else f"versions {stored + 1} to {version - 1} are"
        )
        super().__init__(
            f"{projection} has {key!r} at version {stored}; {missing} missing before {version}. "
            "Handle what is missing first, then this one again."
        )
        self.projection, self.key, self.stored, self.version = projection, key, stored, version


class BusinessError(HandlingError):
    pass


class CommandRefused(BusinessError):
    pass


class InvalidCommand(CommandRefused):
    pass


class ValidationFailed(CommandRefused):
    pass


class AggregateNotFound(CommandRefused):
    pass


class PermissionDenied(CommandRefused):
    pass


class PoisonError(HandlingError):
    pass


class UnreadableMessage(PoisonError):
    pass


class UnknownEventType(PoisonError):
    pass


class UnknownVersion(PoisonError):
    pass


class LeaseLost(PostroadError):
    pass


class ConsumeFailed(PostroadError):
    pass


class ConsumeConflict(PostroadError):
    pass


class CommandStillProcessing(PostroadError):
    def __init__(self, command_type: str, command_id: object) -> None:
        super().__init__(
            f"{command_type} {command_id} is still being processed. Ask again with the same id, a little later."
        )
        self.command_type, self.command_id = command_type, command_id


class CommandConflict(PostroadError):
    def __init__(self, command_type: str, command_id: object, known: str) -> None:
        super().__init__(
            f"{command_type} has the id {command_id}, which stands for another {known} already. "
            "Give each command an id of its own."
        )
        self.command_type, self.command_id = command_type, command_id


class OperationRefused(PostroadError):
    pass
