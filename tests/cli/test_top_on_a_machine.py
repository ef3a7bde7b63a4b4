"""``partage top`` on a terminal, over programs that ``partage run`` started on simulated cards."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tests.cli import top_terminals
from tests.cli.top_terminals import PROGRAM, Terminal, bare

TIMEOUT_S = 60
ALTERNATE, BACK, CURSOR = "\x1b[?1049h", "\x1b[?1049l", "\x1b[?25h"
SIZES = {"small": "1GiB", "middle": "2GiB", "large": "4GiB"}


class Machine:
    """Two simulated cards, and programs that sleep on them."""

    def __init__(self, folder: pathlib.Path, stack: contextlib.ExitStack) -> None:
        self.environment = {
            "PARTAGE_STATE": str(folder / "state"),
            "PARTAGE_SIMULATE": "2x16GiB",
            "HOME": str(folder),
        }
        self._stack = stack
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def run(self, name: str, memory: str) -> None:
        """Start one, and wait until it has what it asked for."""
        words = ("run", "--name", name, "--memory", memory, "--card", "0", "--")
        process = subprocess.Popen(
            [PROGRAM, *words, "sleep", "600"], env={**os.environ, **self.environment}
        )
        self._stack.enter_context(process)
        self._stack.callback(process.kill)
        self.running[name] = process
        deadline_s = time.monotonic() + TIMEOUT_S
        while name not in self.tenants():
            assert process.poll() is None
            assert time.monotonic() < deadline_s

    def tenants(self) -> list[str]:
        """Those that have something, as `partage ps` tells."""
        done = subprocess.run(
            [PROGRAM, "ps", "-o", "json"],
            env={**os.environ, **self.environment},
            capture_output=True,
            check=True,
        )
        return [tenant["name"] for tenant in json.loads(done.stdout)["tenants"]]

    def top(self, *, size: tuple[int, int] = (160, 30), **more: str) -> Terminal:
        """``partage top``."""
        environment = {**self.environment, **more}
        terminal = Terminal(PROGRAM, "top", environment=environment, size=size)
        self._stack.callback(terminal.close)
        return terminal


@pytest.fixture
def machine(tmp_path: pathlib.Path) -> Iterator[Machine]:
    """With nobody on it."""
    with contextlib.ExitStack() as stack:
        yield Machine(tmp_path, stack)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """With three programs, the smallest first; for tests that end none of them."""
    with contextlib.ExitStack() as stack:
        made = Machine(tmp_path_factory.mktemp("machine"), stack)
        for name, memory in SIZES.items():
            made.run(name, memory)
        yield made


def given_back(terminal: Terminal) -> None:
    """The terminal is as it was: its modes, its screen, its cursor."""
    assert terminal.modes_now() == terminal.modes
    assert terminal.said.rindex(ALTERNATE) < terminal.said.rindex(BACK)
    assert terminal.said.rindex(BACK) < terminal.said.rindex(CURSOR)


def order(terminal: Terminal, *texts: str) -> list[str]:
    """The names as they are shown, once all of these texts are."""
    words = [bare(line).split(maxsplit=1) for line in terminal.frame_with(*texts)]
    return [word[0] for word in words if word and word[0] in SIZES]


def test_arrows_move_and_columns_sort(shared: Machine) -> None:
    """As people expect it of nvitop; and q gives the terminal back."""
    terminal = shared.top()
    assert order(terminal, *SIZES) == ["small", "middle", "large"]
    assert "2 cards (simulated)" in bare(terminal.frame_with("small")[0])
    assert terminal.selected() == []

    terminal.press(b"\x1b[B\x1b[B")
    terminal.selected_until("middle")
    terminal.press(b"\x1b[")
    terminal.press(b"A")
    terminal.selected_until("small")
    terminal.press(b"\x1b[F")
    terminal.selected_until("large")

    terminal.press(b"....")
    assert order(terminal, "ASKED(MiB)▼") == ["large", "middle", "small"]
    terminal.selected_until("large")
    terminal.press(b"r")
    assert order(terminal, "ASKED(MiB)▲") == ["small", "middle", "large"]

    assert terminal.modes_now() != terminal.modes
    terminal.press(b"q")
    assert terminal.end() == 0, terminal.said
    given_back(terminal)


def test_brackets_move_what_is_cut_off(shared: Machine) -> None:
    """On a terminal of 60 columns a program's age is reached, and its name again."""
    terminal = shared.top(size=(60, 30))
    terminal.frame_with("small", "[ ] move the table", without="AGE")

    terminal.press(b"]" * 5)
    terminal.frame_with("AGE", without="small")
    terminal.press(b"[")
    terminal.frame_with("2 cards (simulated)")
    terminal.press(b"\x01")
    terminal.frame_with("small", without="AGE")

    terminal.press(b"q")
    assert terminal.end() == 0, terminal.said


@pytest.mark.parametrize("answer", [b"n", b"\r", b"\x1b", b"q", b" "])
def test_whatever_is_not_y_is_no(shared: Machine, answer: bytes) -> None:
    """Nothing is sent, and the program goes on."""
    terminal = shared.top()
    terminal.frame_with("small")
    terminal.press(b"j")
    terminal.selected_until("small")
    terminal.press(b"K")
    pid = shared.running["small"].pid
    terminal.frame_with(f"Send SIGKILL to small (pid {pid}, ", ")? [y/N]")

    terminal.press(answer)
    terminal.frame_with("h help", without="[y/N]")
    terminal.press(b"y")
    terminal.until(top_terminals.HOME)
    terminal.press(b"q")

    assert terminal.end() == 0, terminal.said
    assert shared.running["small"].poll() is None


def test_y_sends_the_signal_to_that_program(machine: Machine) -> None:
    """The others go on; what was done is told, and its line goes away."""
    for name, memory in SIZES.items():
        machine.run(name, memory)
    terminal = machine.top()
    terminal.frame_with(*SIZES)
    for name, key, number in (
        ("small", b"T", signal.SIGTERM),
        ("middle", b"K", signal.SIGKILL),
        ("large", b"I", signal.SIGINT),
    ):
        terminal.press(b"\x1b[H")
        terminal.selected_until(name)
        terminal.press(key)
        terminal.frame_with(f"Send {number.name} to {name} (pid {machine.running[name].pid}, ")
        assert machine.running[name].poll() is None

        terminal.press(b"y")
        terminal.frame_with(f"{number.name} was sent to {name}")

        assert machine.running.pop(name).wait(TIMEOUT_S) == -number
        assert all(process.poll() is None for process in machine.running.values())
        while name in order(terminal, f"sent to {name}"):
            terminal.until(top_terminals.HOME)
    terminal.frame_with("nobody waits")
    terminal.press(b"q")
    assert terminal.end() == 0, terminal.said


def test_what_is_typed_ahead_is_no_answer(shared: Machine) -> None:
    """A y that was pressed before the question could be read does not count."""
    terminal = shared.top()
    terminal.frame_with("small")
    terminal.press(b"jKy")
    terminal.frame_with("Send SIGKILL to small")

    assert shared.running["small"].poll() is None
    terminal.press(b"n")
    terminal.frame_with("h help", without="[y/N]")
    terminal.press(b"q")
    assert terminal.end() == 0, terminal.said
    assert shared.running["small"].poll() is None


def test_who_waits_can_be_sent_away(machine: Machine) -> None:
    """The queue is below the tenants, and its programs have processes too."""
    machine.run("small", "16GiB")
    waiting = subprocess.Popen(
        [PROGRAM, "run", "--name", "later", "--memory", "16GiB", "--card", "0", "--", "true"],
        env={**os.environ, **machine.environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    terminal = machine.top()
    terminal.frame_with("small", "later")
    terminal.press(b"\x1b[4~")
    terminal.selected_until("later")
    terminal.press(b"T")
    terminal.frame_with(f"Send SIGTERM to later (pid {waiting.pid}, ")
    terminal.press(b"y")
    terminal.frame_with("SIGTERM was sent to later")

    assert waiting.wait(TIMEOUT_S) != 0
    assert machine.running["small"].poll() is None


def test_a_window_that_changes_its_size(shared: Machine) -> None:
    """Drawn anew at once, never wrapped, and the selection stays in sight."""
    terminal = shared.top(size=(200, 40))
    terminal.frame_with(*SIZES)
    terminal.press(b"\x1b[F")
    terminal.selected_until("large")

    terminal.press(b"T")
    terminal.frame_with("Send SIGTERM to large")
    terminal.resize(40, 6)

    deadline_s = time.monotonic() + TIMEOUT_S
    while len(lines := terminal.frame_with("large", "Send")) != 6:
        assert time.monotonic() < deadline_s
        terminal.until(top_terminals.HOME)
    assert [len(bare(line)) for line in lines] == [40] * 6
    assert bare(lines[-1]).startswith("Send SIGTERM to large")  # nobody has answered yet
    terminal.selected_until("large")
    terminal.press(b"nq")
    assert terminal.end() == 0, terminal.said


def test_ascii_without_colours(shared: Machine) -> None:
    """For terminals that have no more, and people who want no more."""
    terminal = shared.top(PYTHONIOENCODING="ascii", NO_COLOR="1")
    terminal.frame_with("small", "----------   0%")
    terminal.press(b"q")

    assert terminal.end() == 0
    assert terminal.said.isascii()
    assert "\x1b[3" not in terminal.said  # no colour


def test_a_terminal_that_cannot_move_its_cursor(machine: Machine) -> None:
    """It is shown once there, as in a pipe."""
    terminal = machine.top(TERM="dumb")

    assert terminal.end() == 0, terminal.said
    assert "2 cards (simulated)" in terminal.said
    assert "\x1b" not in terminal.said


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 128 + signal.SIGTERM)]
)
def test_signals_give_the_terminal_back(
    machine: Machine, number: signal.Signals, code: int
) -> None:
    """However it is ended, it leaves no terminal without an echo behind."""
    terminal = machine.top()
    terminal.frame_with("nobody waits")
    terminal.running.send_signal(number)

    assert terminal.end() == code, terminal.said
    given_back(terminal)


def test_being_stopped_gives_the_terminal_back_for_a_while(machine: Machine) -> None:
    """Ctrl-z, and later fg."""
    terminal = machine.top()
    terminal.frame_with("nobody waits")
    terminal.running.send_signal(signal.SIGTSTP)
    stopped = os.waitid(os.P_PID, terminal.running.pid, os.WSTOPPED | os.WNOWAIT)
    assert stopped is not None
    terminal.until(CURSOR)
    given_back(terminal)

    terminal.running.send_signal(signal.SIGCONT)
    terminal.until("nobody waits")
    assert terminal.modes_now() != terminal.modes
    terminal.press(b"q")
    assert terminal.end() == 0, terminal.said
    given_back(terminal)


_BROKEN = """
from rich import console
from partage.cli.commands.top import screen
from partage.cli.display import snapshots
from tests.cli import ps_views
views = iter([ps_views.view()])
screen.show(snapshots.of_machine(lambda: next(views)), console.Console())
"""


def test_a_bug_of_ours_gives_the_terminal_back() -> None:
    """What went wrong is on the screen where the user was before."""
    root = pathlib.Path(__file__).parents[2]
    terminal = Terminal(sys.executable, "-c", _BROKEN, environment={"PYTHONPATH": str(root)})
    with contextlib.closing(terminal):
        assert terminal.end() == 1
        given_back(terminal)
        assert "StopIteration" in terminal.said.rpartition(BACK)[2]


def test_once_is_the_same_page(shared: Machine) -> None:
    """For a pipe, where no agent was asked since a ledger was meant."""
    done = subprocess.run(
        [PROGRAM, "top", "--once"],
        env={**os.environ, **shared.environment},
        capture_output=True,
        text=True,
        check=True,
    )

    heading, _cards, tenants = done.stdout.split("\n\n")
    assert "(simulated)" in heading
    assert [line.split()[0] for line in tenants.splitlines()[1:]] == list(SIZES)
