"""The connection: what is asked over it, and what an answer that is none means."""

import os
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote

import grpc
from google.auth.exceptions import GoogleAuthError
from google.pubsub_v1.services.publisher.transports.grpc_asyncio import PublisherGrpcAsyncIOTransport
from google.pubsub_v1.types import pubsub, schema
from google.rpc import error_details_pb2, status_pb2

from postroad.brokers._thread import LoopThread
from postroad.brokers.pubsub.address import Address
from postroad.errors import BrokerError, BrokerUnavailable

PATIENCE: Final = 5.0
"""Seconds that an answer may take."""
_LARGEST: Final = 64 * 1024 * 1024
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", _LARGEST),
    ("grpc.max_send_message_length", _LARGEST),
    # A refused acknowledgement is told for each of a thousand ids, and all of it in what gRPC calls metadata: above its
    # usual 16 KiB there would be no answer, the same ids would be sent again for ever, and their keys stand still.
    ("grpc.max_metadata_size", 4 * 1024 * 1024),
    # A connection that has died without a word is found out; Google's servers allow no more pings than these.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # By default the pauses between tries grow to two minutes, and an outage would outlast itself.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
)
_threads: Final[dict[int, LoopThread]] = {}
_OF_A_MESSAGE: Final = "EXACTLY_ONCE_ACKID_FAILURE"
_OUTAGES: Final = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    }
)


def raw(name: str) -> Any:
    """The plain protobuf class: the wrapped ones take twice the time."""
    home = pubsub if hasattr(pubsub, name) else schema
    return getattr(home, name).pb()


def connections_thread() -> LoopThread:
    """One for all connections of a process, for as long as it lives: gRPC serves every loop from one queue, and
    stumbles over those that have ended. A forked process has its own."""
    if os.getpid() not in _threads:
        _threads[os.getpid()] = LoopThread("postroad-pubsub")
    return _threads[os.getpid()]


class Rejection(BrokerError):
    """Pub/Sub has answered: no."""

    def __init__(self, code: grpc.StatusCode, details: str, told: str, causes: Mapping[str, str]) -> None:
        super().__init__(f"Pub/Sub ({told}) refuses: {details or code.name}")
        self.code, self.details, self.causes = code, details or code.name, causes
        """`causes`: for each acknowledgement id that was refused, why."""


class Outage(BrokerUnavailable):
    """Pub/Sub has answered nothing, or not us."""

    def __init__(self, code: grpc.StatusCode, told: str) -> None:
        super().__init__(told)
        self.code = code


def missing(rejection: Rejection) -> bool:
    return rejection.code is grpc.StatusCode.NOT_FOUND


class Line:
    """Lives in the connection's thread."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._channel: Any = None
        self._methods: dict[str, Any] = {}
        self._closed = False

    async def ask(self, method: str, request: Any, answer: Any, *, about: str, timeout: float = PATIENCE) -> Any:
        """`method` is such as Publisher/Publish; `about` the field of the request that names its subject. Raises
        BrokerUnavailable or Rejection."""
        channel = self._open()
        if method not in self._methods:
            self._methods[method] = channel.unary_unary(
                f"/google.pubsub.v1.{method}",
                request_serializer=type(request).SerializeToString,
                response_deserializer=answer.FromString,
            )
        try:
            return await self._methods[method](request, timeout=timeout, metadata=_route(request, about))
        except grpc.aio.AioRpcError as error:
            raise self.explained(error) from None

    def pull(self, first: Any) -> Any:
        """A new StreamingPull; `first` is its first request, yet to be written."""
        streaming = self._open().stream_stream(
            "/google.pubsub.v1.Subscriber/StreamingPull",
            request_serializer=type(first).SerializeToString,
            response_deserializer=raw("StreamingPullResponse").FromString,
        )
        return streaming(metadata=_route(first, "subscription"))

    def explained(self, error: grpc.aio.AioRpcError) -> BrokerError:
        code, details = error.code(), error.details() or ""
        causes = _causes(error)
        if code in _OUTAGES and not causes:
            where = f"Pub/Sub at {self._address.target}"
            if code is grpc.StatusCode.DEADLINE_EXCEEDED:
                return Outage(code, f"{where} did not answer in time. Is it running, and reachable from here?")
            return Outage(code, f"{where} cannot be reached ({details or code.name}). Is it running?")
        if code in (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED):
            # For a person to mend: no message's fault.
            return Outage(code, f"Pub/Sub turns us away ({self._address.told}): {details}. Check the roles.")
        return Rejection(code, details, self._address.told, causes)

    async def aclose(self) -> None:
        self._closed = True
        if self._channel is not None:
            await self._channel.close()

    def _open(self) -> Any:
        if self._closed:
            raise BrokerUnavailable("The connection to Pub/Sub is closed. Connect again.")
        if self._channel is None:
            if self._address.emulator:
                self._channel = grpc.aio.insecure_channel(self._address.emulator, options=_OPTIONS)
            else:
                self._channel = _to_the_cloud(self._address.target)
        return self._channel


def _to_the_cloud(target: str) -> Any:
    transport = PublisherGrpcAsyncIOTransport
    try:
        return transport.create_channel(target, scopes=transport.AUTH_SCOPES, options=_OPTIONS)
    except GoogleAuthError as error:
        raise BrokerUnavailable(
            f"Google's credentials cannot be had: {error} For the emulator, add ?emulator=host:port to the URL."
        ) from None


def _route(request: Any, about: str) -> grpc.aio.Metadata:
    """By this header the request finds its way inside Google's network."""
    subject = request
    for part in about.split("."):
        subject = getattr(subject, part)
    return _way(about, subject)


@lru_cache
def _way(about: str, subject: str) -> grpc.aio.Metadata:
    return grpc.aio.Metadata(("x-goog-request-params", f"{about}={quote(subject, safe='')}"))


def _causes(error: grpc.aio.AioRpcError) -> Mapping[str, str]:
    for name, value in error.trailing_metadata() or ():
        if name == "grpc-status-details-bin" and isinstance(value, bytes):
            for detail in status_pb2.Status.FromString(value).details:
                info = error_details_pb2.ErrorInfo()
                if detail.Unpack(info) and info.reason == _OF_A_MESSAGE:
                    return dict(info.metadata)
    return {}
