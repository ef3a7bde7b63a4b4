"""A stand-in for nvidia-cuda-mps-control: the same commands, and no GPU behind them.

``-d`` starts a daemon in the background, which listens on ``control`` in CUDA_MPS_PIPE_DIRECTORY.
Without options it reads commands from standard input, asks the daemon, and prints the answers. What
it answers is what drivers were seen to answer: ``25.0`` for a percentage, and an amount of memory
from 1 GiB on in whole GiB. ``start_server -uid`` makes the process id of a server up.

STAND_IN (of the daemon, or of whoever asks) makes it misbehave: see ``FAULTS``. A daemon that is
forgotten ends by itself.
"""

import json
import os
import pathlib
import signal
import socket
import sys
import time

FAULTS = {
    "other-percentage": "answers with another percentage than was set",
    "other-memory": "answers with another amount of memory than was set",
    "server-ignores": "does not pass limits on to servers that run",
    "garbage": "answers with words that nobody knows",
    "refuses": "refuses to set anything",
    "silent": "does not answer the asker at all",
    "stillborn": "says that it starts, and does not",
}
LIFE_S = 60
PIPES = pathlib.Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"))
PID = PIPES / "nvidia-cuda-mps-control.pid"


def main() -> None:
    """Be the daemon, or ask it."""
    if sys.argv[1:] == ["-d"]:
        start()
        return
    for line in sys.stdin:
        answer = ask(line.strip())
        if answer:
            sys.stdout.write(f"{answer}\n")


def fault() -> str:
    """How to misbehave."""
    return os.environ.get("STAND_IN", "")


def ask(command: str) -> str:
    """Pass a command on to the daemon."""
    if fault() == "silent":
        time.sleep(LIFE_S)
    try:
        with socket.socket(socket.AF_UNIX) as wire:
            wire.connect(str(PIPES / "control"))
            wire.sendall(command.encode() + b"\n")
            answer = json.loads(wire.makefile().readline())
    except OSError:
        sys.exit("Cannot find MPS control daemon process")
    if answer["code"]:
        sys.exit(answer["text"])
    return str(answer["text"])


def start() -> None:
    """Become a daemon, once the socket is there."""
    if fault() == "stillborn":
        return
    (PIPES / "control").unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(PIPES / "control"))
    listener.listen()
    if os.fork():
        return
    os.setsid()
    signal.alarm(LIFE_S)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    PID.write_text(f"{os.getpid()}\n", encoding="utf-8")
    serve(listener)


def serve(listener: socket.socket) -> None:
    """Answer one command after another."""
    daemon = Daemon(os.environ.get("CUDA_VISIBLE_DEVICES", "").split(","))
    while daemon.runs:
        wire, _ = listener.accept()
        with wire:
            command = wire.makefile().readline().split()
            code, text = daemon.answer(command)
            wire.sendall(json.dumps({"code": code, "text": text}).encode() + b"\n")
    (PIPES / "control").unlink()
    PID.unlink()


class Daemon:
    """Its state: the defaults, and the servers with theirs."""

    def __init__(self, cards: list[str]) -> None:
        self.runs = True
        self.cards = cards
        self.default: dict[str, str] = {"percentage": "100.0"}
        for limit in filter(
            None, os.environ.get("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "").split(",")
        ):
            card, _, amount = limit.partition("=")
            self.default[card] = amount
        self.servers: dict[str, dict[str, str]] = {}

    def answer(self, command: list[str]) -> tuple[int, str]:
        """The exit code and the words of an answer."""
        name, *rest = command or [""]
        if name == "quit":
            self.runs = False
            return 0, ""
        if name == "start_server":
            self.servers[str(1000 + len(self.servers))] = dict(self.default)
            return 0, ""
        if name == "get_server_list":
            return 0, "what?" if fault() == "garbage" else "\n".join(self.servers)
        verb, _, what = name.partition("_")
        where = self.default
        if not what.startswith("default_"):
            if not rest or rest[0] not in self.servers:
                return 1, "Server not found"
            where = self.servers[rest.pop(0)]
        return self.limit(verb, what.removeprefix("default_"), where, rest)

    def limit(
        self, verb: str, what: str, where: dict[str, str], rest: list[str]
    ) -> tuple[int, str]:
        """Set or get one limit."""
        if what == "active_thread_percentage":
            key = "percentage"
        elif what == "device_pinned_mem_limit" and int(rest[0]) < len(self.cards):
            key = rest.pop(0)
        else:
            return 1, "Invalid argument"
        if verb == "get":
            return 0, self.shown(where.get(key, ""))
        if fault() == "refuses":
            return 1, "Permission denied"
        if fault() != "server-ignores" or where is self.default:
            where[key] = kept(key, rest[0])
        return 0, ""

    def shown(self, value: str) -> str:
        """As drivers print it: whole GiB where there are any."""
        if fault() == "garbage":
            return "enough"
        megabytes = int(value[:-1]) if value.endswith("M") else 0
        return f"{megabytes // 1024}G" if megabytes >= 1024 else value


def kept(key: str, value: str) -> str:
    """What becomes of a value that is set."""
    if key == "percentage":
        return str(float(value) + 1 if fault() == "other-percentage" else float(value))
    return "77M" if fault() == "other-memory" else value


if __name__ == "__main__":
    main()
