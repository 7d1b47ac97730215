"""Servers of our own, to be restarted at will: described by scripts/services.d, like those of the tests."""

import asyncio
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_SCRIPT: Final = Path(__file__).with_name("server.sh")
_PATIENCE: Final = 120.0
_CANDIDATES: Final = range(20_000, 32_000)
"""Below those that the system gives to outgoing connections: one of them could take the port during a restart."""
_PORTS: Final = (*range(10), 100, 200, 300)
"""What a server may take, counted from its own port: Kafka the first, for its doors, and RabbitMQ the others; see
scripts/services.d."""


class ServerTrouble(Exception):
    pass


def installed(name: str) -> bool:
    return (
        subprocess.run(["bash", str(_SCRIPT), name, ".", "0", "programs"], capture_output=True, check=False).returncode
        == 0
    )


class Server:
    def __init__(self, name: str, folder: Path) -> None:
        self._name, self._folder = name, folder / name
        self.port = _free_port()
        self.doors: Sequence[int] = ()
        """Ports of what stands between it and its clients."""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return self._ask("url").strip()

    def entry(self, door: int) -> int:
        """The port for the door of that number. Kafka tells its clients where it is: what it tells them goes by where
        they came in."""
        return self.port + 1 + door if self._name == "kafka" else self.port

    async def create(self) -> None:
        self._folder.mkdir()
        await asyncio.to_thread(self._ask, "create")
        self._signal = signal.Signals[f"SIG{self._ask('stop_signal').strip()}"]

    async def start(self) -> None:
        process = self._process = self._launch()
        deadline = time.monotonic() + _PATIENCE
        while not await asyncio.to_thread(self._answers):
            if process.poll() is not None or time.monotonic() > deadline:
                raise ServerTrouble(f"{self._name} did not start:\n{self._log()}")
            await asyncio.sleep(0.2)

    async def stop(self) -> None:
        """Without waiting for its clients."""
        if self._process is not None:
            self._process.send_signal(self._signal)
            await asyncio.to_thread(self._process.wait, _PATIENCE)
            self._process = None

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    def _launch(self) -> subprocess.Popen[bytes]:
        """Not in a thread: it is to die with its parent, and the kernel means the thread that started it."""
        with (self._folder / "server.log").open("ab") as log:
            return subprocess.Popen(self._command("launch"), stdout=log, stderr=log, env=self._environment)

    def _answers(self) -> bool:
        return subprocess.run(self._command("answers"), capture_output=True, check=False).returncode == 0

    def _ask(self, action: str) -> str:
        done = subprocess.run(self._command(action), capture_output=True, text=True, check=False, env=self._environment)
        if done.returncode:
            raise ServerTrouble(f"{self._name}, {action}: {done.stderr[-2000:]}")
        return done.stdout

    @property
    def _environment(self) -> dict[str, str]:
        doors = (f"{self.entry(number)}:{port}" for number, port in enumerate(self.doors))
        return os.environ | {"KAFKA_DOORS": " ".join(doors)}

    def _command(self, action: str) -> list[str]:
        return ["bash", str(_SCRIPT), self._name, str(self._folder), str(self.port), action]

    def _log(self) -> str:
        return (self._folder / "server.log").read_text(errors="replace")[-2000:]


def _free_port() -> int:
    while True:
        port = random.choice(_CANDIDATES)
        if all(_is_free(port + distance) for distance in _PORTS):
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
