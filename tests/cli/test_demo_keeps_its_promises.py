"""``partage demo``, run as people run it: what it shows, and that it leaves nothing behind."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from partage.cli.commands.demo import launcher
from partage.fence.library import libpartage
from tests import leaving_out

PROMISES = (
    *("no card was given more than it has", "no program used more than its share"),
    *("a program that allocates past its share gets", "the other programs went on"),
    *("a program without room waits", "the share of a killed program goes to the next"),
    *("no wrapper stays", "no share is left behind"),
)


@pytest.fixture
def no_gpu() -> None:
    """Leaves the test out where there is a GPU: cards are then not simulated by themselves."""
    if Path("/dev/nvidiactl").exists():
        leaving_out.leave_out("a machine without a GPU", "this one has a driver")


class Place:
    """A folder in which a demo has its temporary files, and by which its processes are known."""

    def __init__(self, path: Path) -> None:
        self.path = path / "tmp"
        self.mine = path / "mine"  # the ledger that is not the demo's
        self.path.mkdir()

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        """A demo that runs."""
        plain = {k: v for k, v in os.environ.items() if not k.startswith(("PARTAGE_", "SIMCUDA_"))}
        own = {"TMPDIR": str(self.path), "PARTAGE_STATE": str(self.mine)}
        command = [sys.executable, "-c", "from partage.cli.main import main; main()"]
        return subprocess.Popen(
            [*command, *arguments],
            env=plain | own | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """A demo that ran."""
        demo = self.start(*arguments, **environment)
        out, err = demo.communicate(timeout=120)
        return subprocess.CompletedProcess(demo.args, demo.returncode, out, err)

    def processes(self, words: bytes = b"") -> list[int]:
        """Those that were started by a demo here, and have these words in their command."""
        return [pid for pid in _pids() if self._ours(pid) and words in _read(pid, "cmdline")]

    def _ours(self, pid: int) -> bool:
        return os.fsencode(self.path) in _read(pid, "environ")


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]


def _read(pid: int, name: str) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/{name}").read_bytes()
    return b""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Of all tests here; whatever a demo leaves behind, the next test sees."""
    place = Place(tmp_path_factory.mktemp("demo"))
    yield place
    for pid in place.processes():
        os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def shown(place: Place) -> subprocess.CompletedProcess[str]:
    """A demo as it is, once."""
    return place.run("demo")


def test_every_promise_is_kept(shown: subprocess.CompletedProcess[str]) -> None:
    """One line each, after all that a person sees."""
    assert (shown.returncode, shown.stderr) == (0, ""), shown.stdout
    for promise in PROMISES:
        assert f"\nkept: {promise}" in shown.stdout
    assert "BROKEN" not in shown.stdout


@pytest.mark.usefixtures("no_gpu")
def test_without_a_gpu_the_cards_are_simulated(shown: subprocess.CompletedProcess[str]) -> None:
    """Two of 16 GiB, with the sizes that people read about; every table says what it is of."""
    assert shown.stdout.startswith("\nPartage on simulated cards: card 0 Simulated GPU with 16GiB")
    assert "$ export PARTAGE_SIMULATE=2x16GiB\n" in shown.stdout
    for words in (
        "train --memory 4GiB --compute 30%",
        "sweep --memory 25%",
        "notebook --limits aliyun.com/gpu-mem=3",
        "bench --exclusive",
        "serve --memory 8GiB --compute 30%:80%",
        "late --memory 8GiB",
    ):
        assert f"$ partage run --name {words} -- python {words.split()[0]}.py\n" in shown.stdout
    assert "train asked 6144 of 4096 MiB, CUDA_ERROR_OUT_OF_MEMORY" in shown.stdout
    assert "2 cards (simulated)" in shown.stdout
    assert "The same simulated cards in the table of kubectl inspect gpushare" in shown.stdout


@pytest.mark.usefixtures("no_gpu")
def test_the_tables_show_the_programs_while_they_run(
    shown: subprocess.CompletedProcess[str],
) -> None:
    """Those that are left when one has ended and one was killed; gpushare's table says the same."""
    ps = shown.stdout.partition("$ partage ps\n")[2].partition("\n\nThe same")[0]
    rows = [line.split() for line in ps.splitlines() if " hook " in line]
    shares = {row[0]: (int(row[2]), row[3]) for row in rows}
    assert shares == {
        "train": (0, "4Gi"),
        "notebook": (0, "3Gi"),
        "late": (0, "8Gi"),
        "bench": (1, "16Gi"),
    }
    assert re.search(r"^\S+ +127\.0\.0\.1 +15/16 +16/16 +31/32$", shown.stdout, re.MULTILINE)


def test_it_leaves_nothing_behind(shown: subprocess.CompletedProcess[str], place: Place) -> None:
    """No process, no file, and nothing in the ledger that is the user's."""
    assert shown.returncode == 0
    assert place.processes() == []
    assert list(place.path.iterdir()) == []
    assert not place.mine.exists()


def test_one_card_is_enough(place: Place) -> None:
    """Then nobody has a whole one, and the rest of the story is the same; JSON has it all."""
    done = place.run("demo", "-o", "json", PARTAGE_SIMULATE="1x24GiB")

    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert (report["kind"], report["simulated"], report["problem"]) == ("Demo", True, "")
    assert [promise["kept"] for promise in report["promises"]] == [True] * len(PROMISES)
    names = {promise["name"] for promise in report["promises"]}
    assert "exclusive" not in names
    assert {"capacity", "out-of-memory", "neighbours", "waiting", "killed", "left"} < names


def test_a_machine_with_a_driver_shows_its_own_cards(place: Place, tmp_path: Path) -> None:
    """No switch is set; a foreign program is on a card, and what it leaves is what is shared."""
    driver = {
        "LD_LIBRARY_PATH": str(libpartage.folder() / "simulated"),
        "SIMCUDA_CARDS": "3x16GiB",
        "SIMCUDA_STATE": str(tmp_path / "machine"),
        "SIMCUDA_KERNEL_US": "1000",
    }
    with _foreign(tmp_path, driver | {"CUDA_VISIBLE_DEVICES": "1"}) as pid:
        done = place.run("demo", **driver)

    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "PARTAGE_SIMULATE" not in done.stdout
    # The foreign program has a quarter of 16 GiB, a context of 256 MiB, and a module.
    assert "--name train --memory 3007MiB --compute 30% --card 1 -- " in done.stdout
    assert "--name bench --exclusive --card 0 -- " in done.stdout
    assert re.search(rf"^{pid} +1 ", done.stdout, re.MULTILINE)
    assert done.stdout.count("\nkept: ") == len(PROMISES) + 1
    assert list(place.path.iterdir()) == []


def test_a_promise_that_is_broken_is_said(place: Place) -> None:
    """Somebody kills a neighbour: it does not go on, and that is no success."""
    demo = place.start("demo", PARTAGE_SIMULATE="2x16GiB")
    assert demo.stdout
    before = _until(demo, "--name bench")
    (neighbour,) = place.processes(b"notebook.py")
    os.kill(neighbour, signal.SIGKILL)
    out, err = demo.communicate(timeout=120)

    assert demo.returncode == 1
    assert "BROKEN: the other programs went on: the demo did not come that far" in out
    assert "kept: no card was given more than it has" in out
    assert err.startswith("partage: notebook was ended by signal 9; the last line of its log: ")
    assert "train" in before
    assert place.processes() == []
    assert list(place.path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_who_interrupts_it_ends_everything(place: Place, number: signal.Signals) -> None:
    """Its programs too, the one that waits included, and the folder."""
    demo = place.start("demo", PARTAGE_SIMULATE="2x16GiB")
    _until(demo, "serve waits")
    assert len(place.processes()) >= 6  # the demo, four programs, and one that waits
    demo.send_signal(number)
    _, err = demo.communicate(timeout=60)

    assert (demo.returncode, err.strip()) == (130, "")
    assert place.processes() == []
    assert list(place.path.iterdir()) == []


def test_without_cuda_bindings_it_says_what_to_install(place: Place, tmp_path: Path) -> None:
    """Before anything is started."""
    (tmp_path / "cuda").mkdir()
    (tmp_path / "cuda/__init__.py").touch()  # a package of that name with nothing in it
    done = place.run("demo", PARTAGE_SIMULATE="2x16GiB", PYTHONPATH=str(tmp_path))

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "partage: the programs of the demo need the Python package cuda-bindings; "
        "pip install cuda-bindings\n"
    )


def test_a_card_that_is_too_small_is_refused(place: Place) -> None:
    """With the way out."""
    done = place.run("demo", PARTAGE_SIMULATE="2GiB")

    assert (done.returncode, done.stdout) == (1, "")
    assert "card 0 has 2048 MiB free, and the demo needs 4096 MiB" in done.stderr
    assert "partage --simulate 2x16GiB demo" in done.stderr
    assert list(place.path.iterdir()) == []


@contextlib.contextmanager
def _foreign(folder: Path, environment: dict[str, str]) -> Iterator[int]:
    """A program on a card that nobody started by Partage; its process id."""
    program = shutil.copy(launcher.PROGRAM, folder / "foreign.py")
    with subprocess.Popen(
        [sys.executable, program],
        env=os.environ | environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as running:
        assert running.stdout
        assert b"total_bytes" in running.stdout.readline()
        yield running.pid


def _until(demo: subprocess.Popen[str], words: str) -> str:
    """What a demo prints, up to a line with these words."""
    assert demo.stdout
    lines: list[str] = []
    for line in demo.stdout:
        lines.append(line)
        if words in line:
            return "".join(lines)
    raise AssertionError("".join(lines))
