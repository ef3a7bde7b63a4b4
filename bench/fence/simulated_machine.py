"""Simulated machine: with one card, its tenants, and clients that run on it.

Each machine is new: its state and its fences lie in a folder of their own, in memory if there is
such a place, because both are mapped by every client.
"""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from native import compilers, libraries, parts
from partage.fence.library import libpartage, originals, substitutes
from partage.fence.store import limits, roots, tenants

SIMULATED = parts.LIB / "simulated"
CARD = "GPU-09a47a6e-0000-4000-8000-000000000001"

_CONFIG = """\
state = {folder}/machine
context_mib = 256
[card]
memory = 80GiB
uuid = {card}
"""
_SHM = Path("/dev/shm")
_LIBRARY_PATH = {"LD_LIBRARY_PATH": str(SIMULATED)}

T = TypeVar("T")


class ClientFailed(Exception):
    """A client ended too early; what it said is on stderr."""


class Client:
    """One process of the C client, which does something for each line it is sent."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self._child = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._command = command

    @property
    def pid(self) -> int:
        return self._child.pid

    def wait_until_ready(self) -> None:
        self.answer(str)

    def go(self) -> None:
        """Let it have its turn."""
        assert self._child.stdin is not None
        self._child.stdin.write(b"\n")
        self._child.stdin.flush()

    def answer(self, kind: type[T]) -> T:
        """What it says next."""
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            raise ClientFailed(f"{' '.join(self._command)} ended with {self._child.wait()}")
        return msgspec.json.decode(line, type=kind)

    def end(self) -> None:
        """Let it end, whatever it is doing."""
        self._child.kill()
        self._child.communicate()


class Machine:
    """A machine on which nothing has run yet."""

    def __init__(self, folder: Path) -> None:
        self._config = folder / "config"
        self._config.write_text(_CONFIG.format(folder=folder, card=CARD))
        self.root = roots.prepare(folder / "fences")
        self._client = client_program(folder)

    def tenant(self, name: str, **of_card: object) -> tenants.Tenant:
        """A new tenant of the card, with limits by the names of :class:`limits.CardLimits`."""
        card = msgspec.convert({"uuid": CARD, **of_card}, limits.CardLimits)
        links = substitutes.links(libpartage.find(), originals.find(_LIBRARY_PATH))
        return tenants.create(self.root, name, limits.Limits((card,)), links=links)

    @contextlib.contextmanager
    def running(
        self,
        *arguments: object,
        tenant: tenants.Tenant | None = None,
        core: int | None = None,
        kernel_us: float = 0,
        preloaded: bool = True,
    ) -> Iterator[Client]:
        """A client that is ready; direct, if it is no tenant's.

        What is not preloaded is in the driver's place alone.
        """
        command = [self._client, "-" if core is None else core, *arguments]
        environment = self._environment(tenant, kernel_us)
        if not preloaded:
            environment.pop("LD_PRELOAD", None)
        client = Client([str(word) for word in command], environment)
        try:
            client.wait_until_ready()
            yield client
        finally:
            client.end()

    def _environment(self, tenant: tenants.Tenant | None, kernel_us: float) -> dict[str, str]:
        environment = {
            **_LIBRARY_PATH,
            "SIMCUDA_CONFIG": str(self._config),
            "SIMCUDA_KERNEL_US": str(kernel_us),
        }
        if tenant is None:
            return environment
        return environment | substitutes.environment(
            tenant.libraries, tenant.limits_path, environment
        )


@contextlib.contextmanager
def fresh() -> Iterator[Machine]:
    """A machine that is gone afterwards."""
    place = _SHM if _SHM.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="partage-bench-", dir=place) as folder:
        yield Machine(Path(folder))


def measured_core() -> int:
    """The core on which calls are timed; whoever steers is put on the others by the kernel."""
    return max(os.sched_getaffinity(0))


@functools.cache
def _built() -> bytes:
    """The client's program; it takes a second to build, so once for all machines."""
    with tempfile.TemporaryDirectory() as folder:
        return (
            compilers.system()
            .link(
                Path(folder) / "client",
                [
                    *sorted((Path(__file__).parent / "client").glob("*.c")),
                    SIMULATED / "libcuda.so.1",
                ],
                *(f"-isystem{headers}" for headers in libraries.header_folders()),
                "-pthread",
                "-ldl",
            )
            .read_bytes()
        )


def client_program(folder: Path) -> Path:
    """The client, in a folder."""
    program = folder / "client"
    program.write_bytes(_built())
    program.chmod(0o755)
    return program
