"""``partage run`` becomes the program: nothing of it stays, and nothing about the process changes.

What the program is told is looked at from inside it, what it is by the kernel's account of it.
"""

from __future__ import annotations

import json
import os
import pathlib
import pty
import resource
import select
import shlex
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from tests import simulated_machines
from tests.local import installations, sites
from tests.local.sites import Site

MIB = 1 << 20
SHARE = ("--memory", "1GiB")

_FILES = """
import json, os
listed = os.listdir("/proc/self/fd")
print(json.dumps({fd: os.readlink(f"/proc/self/fd/{fd}") for fd in listed if fd.isdecimal()
    and os.path.lexists(f"/proc/self/fd/{fd}")}))
"""
_INTERRUPTED = """
import signal, sys
def told(number, frame):
    print("got", signal.Signals(number).name, flush=True)
    sys.exit(7)
signal.signal(signal.SIGINT, told)
print("ready", flush=True)
while True:
    signal.pause()
"""


def _ran(site: Site, *command: str, options: tuple[object, ...] = SHARE, **how: Any) -> str:
    """What a program with a share printed; it ended well."""
    done = site.partage("run", *options, "--", *command, **how)
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


def _environment(text: str) -> dict[str, str]:
    """What ``env -0`` printed."""
    return dict(line.split("=", 1) for line in text.split("\0") if line)


def _status(text: str) -> dict[str, str]:
    """What is in ``/proc/self/status``."""
    return {
        name: rest.strip() for name, _, rest in (line.partition(":") for line in text.split("\n"))
    }


def _signals(mask: str) -> set[int]:
    return {number for number in range(1, 65) if int(mask, 16) >> (number - 1) & 1}


class Terminal:
    """A terminal of its own, and what was started as its first process."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.execve(command[0], command, environment)
        self.said = ""

    def reads(self, text: str) -> None:
        """Wait until it says something; what came before is forgotten."""
        until = time.monotonic() + sites.PATIENCE_S
        while text not in self.said:
            ready, _, _ = select.select([self._fd], [], [], until - time.monotonic())
            assert ready, f"{text!r} did not come: {self.said}"
            self.said += os.read(self._fd, 4096).decode()
        self.said = self.said.partition(text)[2]

    def types(self, text: str) -> None:
        """Press these keys."""
        os.write(self._fd, text.encode())

    def ended(self) -> int:
        """Its exit code."""
        _, status = os.waitpid(self.pid, 0)
        os.close(self._fd)
        return os.waitstatus_to_exitcode(status)


def test_the_process_that_was_started_is_the_program(site: Site) -> None:
    """No process of Partage stays, before the program or beside it."""
    program = site.holding(*SHARE)
    folder = pathlib.Path(f"/proc/{program.pid}")
    sites.eventually(lambda: (folder / "comm").read_text() == "sleep\n")
    assert (folder / "cmdline").read_bytes() == b"sleep\x00600\x00"
    assert (folder / f"task/{program.pid}/children").read_text() == ""
    assert len(list((folder / "task").iterdir())) == 1
    assert _status((folder / "status").read_text())["PPid"] == str(os.getpid())
    assert [row["pid"] for row in site.view()["tenants"]] == [program.pid]


@pytest.mark.parametrize("code", [0, 1, 2, 75, 255])
def test_the_exit_code_is_the_programs(site: Site, code: int) -> None:
    """Whatever the program says at its end is what the caller gets."""
    done = site.partage("run", *SHARE, "--", "sh", "-c", f"exit {code}")
    assert done.returncode == code


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGSEGV])
def test_death_by_a_signal_is_the_programs(site: Site, number: signal.Signals) -> None:
    """A program that is killed is seen to be killed, and by what."""
    program = site.holding(*SHARE)
    program.send_signal(number)
    assert program.wait(sites.PATIENCE_S) == -number


def test_arguments_come_as_they_were_written(site: Site) -> None:
    """Blanks, quotes, newlines, options, empty ones and bytes that are no text."""
    odd = [
        "",
        " ",
        "a b",
        "'\"",
        "$HOME",
        "*",
        "--",
        "--memory",
        "-x",
        "--help",
        "\n",
        "é",
        "\udcff",
    ]
    script = "import os, sys; sys.stdout.buffer.write(b'\\0'.join(map(os.fsencode, sys.argv[1:])))"
    done = subprocess.run(
        [str(sites.PARTAGE), "run", *SHARE, "--", sys.executable, "-c", script, *odd],
        env=site.environment,
        capture_output=True,
        check=True,
    )
    assert done.stdout.split(b"\0") == [os.fsencode(row) for row in odd]


def test_options_end_where_the_program_begins(site: Site) -> None:
    """Without the two dashes too, the options behind the program are the program's."""
    done = site.partage("run", *SHARE, "echo", "--memory", "--help")
    assert done.stdout == "--memory --help\n"


def test_standard_input_is_the_programs_from_the_first_byte(site: Site) -> None:
    """Nothing of it was read ahead."""
    program = site.run(*SHARE, command=["cat"], stdin=subprocess.PIPE)
    text = "one\ntwo\n" * 10_000
    assert program.communicate(text, timeout=sites.PATIENCE_S)[0] == text


def test_the_folder_is_the_callers(site: Site, tmp_path: pathlib.Path) -> None:
    """The program starts where its user is."""
    folder = tmp_path / "a folder"
    folder.mkdir()
    assert _ran(site, "pwd", cwd=folder) == f"{folder}\n"


def test_signals_are_as_the_caller_left_them(site: Site) -> None:
    """What only Python ignores is not ignored, and what the caller ignores or blocks is."""
    plain = _status(_ran(site, "cat", "/proc/self/status"))
    own = _status(pathlib.Path("/proc/self/status").read_text())
    inherited = _signals(own["SigIgn"]) - {signal.SIGPIPE, signal.SIGXFSZ}
    assert _signals(plain["SigIgn"]) == inherited
    assert _signals(plain["SigCgt"]) == set()
    assert _signals(plain["SigBlk"]) == _signals(own["SigBlk"])
    caller = ["env", "--ignore-signal=INT,HUP", "--block-signal=USR1,TERM", str(sites.PARTAGE)]
    done = subprocess.run(
        [*caller, "run", *SHARE, "--", "cat", "/proc/self/status"],
        env=site.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    status = _status(done.stdout)
    assert _signals(status["SigIgn"]) == inherited | {signal.SIGINT, signal.SIGHUP}
    assert _signals(status["SigBlk"]) == _signals(own["SigBlk"]) | {signal.SIGUSR1, signal.SIGTERM}


def test_limits_and_umask_are_as_the_caller_left_them(site: Site) -> None:
    """Files that the program makes have the modes that its user wants."""
    script = "umask; ulimit -n; ulimit -c"
    plain = subprocess.run(
        ["sh", "-c", script], capture_output=True, text=True, check=True, umask=0o027
    )
    assert plain.stdout.startswith("0027\n")
    assert _ran(site, "sh", "-c", script, umask=0o027) == plain.stdout
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == int(plain.stdout.split()[1])


def test_one_file_more_is_open_and_it_is_out_of_the_way(site: Site, tmp_path: pathlib.Path) -> None:
    """The lease, above the numbers that scripts choose; those of the caller stay open."""
    with (tmp_path / "mine").open("w") as mine:
        look = [sys.executable, "-c", _FILES]
        given: dict[str, Any] = {"pass_fds": (mine.fileno(),)}
        plain = subprocess.run(
            look, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True, **given
        )
        files = json.loads(_ran(site, *look, **given))
        assert files[str(mine.fileno())] == mine.name
    more = files.keys() - json.loads(plain.stdout).keys()
    (fd,) = more
    assert int(fd) >= 100
    assert pathlib.Path(files[fd]).parent == site.folder / "leases"


def test_the_environment_is_the_callers_and_what_is_documented(site: Site) -> None:
    """Nothing else is added, taken or changed, even what is no text."""
    odd = {"EMPTY": "", "ODD": "\udcff\n=x", "PYTHONPATH": "/nowhere"}
    # In a path with a blank pip starts us through a shell, which adds this if it is missing.
    given = site.environment | odd | {"PWD": str(pathlib.Path.cwd())}
    done = subprocess.run(
        [str(sites.PARTAGE), "run", *SHARE, "--compute", "30", "--name", "me", "--", "env", "-0"],
        env=given,
        capture_output=True,
        check=True,
    )
    environment = _environment(os.fsdecode(done.stdout))
    added = {name: text for name, text in environment.items() if given.get(name) != text}
    uuid = environment["CUDA_VISIBLE_DEVICES"]
    limits = pathlib.Path(added.pop("PARTAGE_LIMITS"))
    assert limits.is_relative_to(site.folder / "fence/tenants")
    libraries = limits.parent / "lib"
    assert added == {
        "CUDA_VISIBLE_DEVICES": uuid,
        "NVIDIA_VISIBLE_DEVICES": uuid,
        "PARTAGE_NAME": "me",
        "PARTAGE_FENCE": "hook",
        "PARTAGE_MEMORY_BYTES": f"{uuid}={1024 * MIB}",
        "PARTAGE_COMPUTE_PERCENT": f"{uuid}=30",
        "LD_PRELOAD": str(libraries / "libpartage.so"),
        # What follows in this one, and the other three, are the simulated driver's.
        "LD_LIBRARY_PATH": f"{libraries}:{simulated_machines.LIBRARIES}",
        "PATH": f"{simulated_machines.LIBRARIES}:{given['PATH']}",
        "SIMCUDA_CARDS": "2x16GiB",
        "SIMCUDA_STATE": str(site.folder / "machine"),
    }
    assert given.keys() - environment.keys() == set()


@pytest.mark.parametrize("locale", [{}, {"LANG": "C"}, {"LC_ALL": "C"}, {"LC_CTYPE": "C"}])
def test_python_leaves_no_locale_behind(site: Site, locale: dict[str, str]) -> None:
    """Where there is no locale Python sets one for itself; the program's stays as it was."""
    names = ("LANG", "LC_ALL", "LC_CTYPE")
    for name in names:
        site.environment.pop(name, None)
    environment = _environment(_ran(site, "env", "-0", env=locale))
    assert {name: environment[name] for name in names if name in environment} == locale


def test_libraries_that_were_preloaded_stay(site: Site) -> None:
    """The fence comes first, and the caller's own after it."""
    other = str(simulated_machines.LIBRARIES / "libnvidia-ml.so.1")
    environment = _environment(_ran(site, "env", "-0", env={"LD_PRELOAD": other}))
    fence = pathlib.Path(environment["PARTAGE_LIMITS"]).parent / "lib" / "libpartage.so"
    assert environment["LD_PRELOAD"] == f"{fence} {other}"


def test_cards_are_named_by_uuid_each_once(site: Site) -> None:
    """Two cards in the order of the share, in both variables and in the amounts."""
    options = ("--cards", "2", "--memory", "2GiB", "--compute", "25%:50%")
    environment = _environment(_ran(site, "env", "-0", options=options))
    uuids = environment["CUDA_VISIBLE_DEVICES"].split(",")
    assert sorted(uuids) == sorted(card["uuid"] for card in site.view()["cards"])
    assert environment["NVIDIA_VISIBLE_DEVICES"].split(",") == uuids
    assert environment["PARTAGE_MEMORY_BYTES"] == ",".join(f"{uuid}={2048 * MIB}" for uuid in uuids)
    assert environment["PARTAGE_COMPUTE_PERCENT"] == ",".join(f"{uuid}=25" for uuid in uuids)


def test_what_has_no_limit_is_not_told(site: Site) -> None:
    """An exclusive card has no amounts, and its environment none."""
    environment = _environment(_ran(site, "env", "-0", options=("--exclusive",)))
    assert not {"PARTAGE_MEMORY_BYTES", "PARTAGE_COMPUTE_PERCENT"} & environment.keys()
    assert environment["PARTAGE_NAME"] == "env-1"


def test_ctrl_c_is_the_programs(site: Site) -> None:
    """On a terminal the program gets the interrupt itself, and answers it as it likes."""
    command = [str(sites.PARTAGE), "run", *SHARE, "--", sys.executable, "-c", _INTERRUPTED]
    terminal = Terminal(command, site.environment)
    terminal.reads("ready")
    assert [tenant["pid"] for tenant in site.view()["tenants"]] == [terminal.pid]
    terminal.types("\x03")
    terminal.reads("got SIGINT")
    assert terminal.ended() == 7


def test_a_shell_can_stop_it_and_let_it_go_on(site: Site) -> None:
    """Job control: Ctrl-Z gives the prompt back, and ``fg`` the terminal."""
    program = (sys.executable, "-c", _INTERRUPTED)
    run = shlex.join([str(sites.PARTAGE), "run", "--memory", "1GiB", "--", *program])
    shell = f"{run}; echo stopped $?; fg; echo ended $?"
    terminal = Terminal(["/bin/bash", "-m", "-c", shell], site.environment)
    terminal.reads("ready")
    terminal.types("\x1a")
    terminal.reads(f"stopped {128 + signal.SIGTSTP}")
    assert len(site.names()) == 1, "a stopped program keeps its share"
    terminal.types("\x03")
    terminal.reads("got SIGINT")
    terminal.reads("ended 7")
    assert terminal.ended() == 0


def test_a_program_that_is_not_there_is_127(site: Site) -> None:
    """Told as shells do, before anything is made or granted."""
    done = site.partage("run", *SHARE, "--", "no-such-program-anywhere")
    assert done.returncode == 127
    assert "there is no program no-such-program-anywhere" in done.stderr
    assert not (site.folder / "ledger.db").exists()
    assert "there is no program ''; check" in site.partage("run", *SHARE, "--", "").stderr


def test_a_file_that_is_no_program_is_126(site: Site, tmp_path: pathlib.Path) -> None:
    """Neither may it be executed, nor does it take anything."""
    plain = tmp_path / "plain"
    plain.write_text("echo never\n")
    done = site.partage("run", *SHARE, "--", plain)
    assert done.returncode == 126
    assert f"chmod +x {plain}" in done.stderr
    assert not (site.folder / "ledger.db").exists()
    done = site.partage("run", *SHARE, "--", tmp_path)
    assert done.returncode == 126
    assert f"{tmp_path} is a folder; name a program" in done.stderr


@pytest.mark.parametrize("name", ["", "-x", "größe", "x" * 64])
def test_what_cannot_be_a_name_is_refused(site: Site, name: str) -> None:
    """With all that a name must be: which letters, how many, and which comes first."""
    done = site.partage("run", *SHARE, "--name", name, "--", "true")
    assert done.returncode == 2
    assert f"{name!r} is not a valid name; write up to 63 of A-Z, a-z, 0-9, '.', '-' and '_'; " in (
        done.stderr
    )
    assert "a letter or a digit first" in done.stderr


def test_a_program_whose_interpreter_is_missing_is_126(site: Site, tmp_path: pathlib.Path) -> None:
    """What only the kernel finds out comes after the grant, which ends with the process."""
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    done = site.partage("run", *SHARE, "--", script)
    assert done.returncode == 126
    assert f"{script} cannot be started" in done.stderr
    assert "Traceback" not in done.stderr
    assert site.names() == []


def test_a_share_in_a_share_is_refused(site: Site) -> None:
    """A program that has a share cannot take another for a part of itself."""
    inner = [str(sites.PARTAGE), "run", *SHARE, "--", "echo", "never"]
    done = site.partage("run", *SHARE, "--fence", "advisory", "--name", "outer", "--", *inner)
    assert done.returncode == 2
    assert "already a program with a share (outer)" in done.stderr
    assert done.stdout == ""


def test_commands_in_a_share_see_the_whole_machine(site: Site) -> None:
    """``partage ps`` there steps outside of the fence."""
    site.holding(*SHARE, "--name", "neighbour")
    view = json.loads(_ran(site, str(sites.PARTAGE), "ps", "-o", "json"))
    assert [card["memory_mib"] for card in view["cards"]] == [16384, 16384]
    assert [tenant["name"] for tenant in view["tenants"]] == ["neighbour", "partage-2"]


def test_the_fence_that_is_there_can_be_asked_for(site: Site) -> None:
    """The hook is; the driver's and MPS need somebody who stays, and that is said."""
    options = (*SHARE, "--fence", "hook")
    assert _ran(site, "printenv", "PARTAGE_FENCE", options=options) == "hook\n"
    for level in ("driver", "mps"):
        done = site.partage("run", *SHARE, "--fence", level, "--", "echo", "never")
        assert (done.returncode, done.stdout) == (2, "")
        assert f"the fence {level} is requested, but the strongest available is hook" in done.stderr
    assert site.names() == []


def test_without_the_library_nothing_claims_to_be_fenced(
    site: Site, tmp_path: pathlib.Path
) -> None:
    """A user who wants less than the hook is told the share, and ``ps`` says so."""
    site.environment |= installations.without_library(tmp_path)
    environment = _environment(_ran(site, "env", "-0", options=(*SHARE, "--fence", "advisory")))
    assert environment["PARTAGE_FENCE"] == "advisory"
    assert not {"LD_PRELOAD", "PARTAGE_LIMITS"} & environment.keys()
    assert (
        environment["PARTAGE_MEMORY_BYTES"] == f"{environment['CUDA_VISIBLE_DEVICES']}={1024 * MIB}"
    )
    site.holding(*SHARE, "--fence", "advisory")
    assert [tenant["fence"] for tenant in site.view()["tenants"]] == ["advisory"]
    assert [tenant["used_bytes"] for tenant in site.view()["tenants"]] == [None]


def test_without_the_library_that_is_said_before_the_program_starts(
    site: Site, tmp_path: pathlib.Path
) -> None:
    """Once, with what to do; the program runs, and where there is a fence nothing is said."""
    command = ("run", *SHARE, "--fence", "advisory", "--", "sh", "-c", "echo ran >&2")
    assert "keeps" not in site.partage(*command).stderr
    site.environment |= installations.without_library(tmp_path)
    said, *_, ran = site.partage(*command).stderr.splitlines()
    assert "/sh to its share: " in said
    assert said.startswith("partage: nothing keeps ")
    assert "libpartage.so cannot be read" in said
    assert said.endswith("install Partage from a wheel, or run `make native` in a checkout")
    assert ran == "ran"


@pytest.mark.parametrize("options", [("--fence", "hook"), ()])
@pytest.mark.parametrize("limit", [("--memory", "1GiB"), ("--compute", "30%")])
def test_without_the_library_a_limit_is_refused(
    site: Site, tmp_path: pathlib.Path, limit: tuple[str, ...], options: tuple[str, ...]
) -> None:
    """A user who asks for one gets it, or nothing is started; the error says what to do."""
    site.environment |= installations.without_library(tmp_path)
    done = site.partage("run", *limit, *options, "--", "echo", "never")
    assert (done.returncode, done.stdout) == (2, "")
    assert "libpartage.so cannot be read" in done.stderr
    assert "make native" in done.stderr
    assert "advisory" in done.stderr
    assert not (site.folder / "ledger.db").exists()


def test_without_the_library_a_whole_card_can_be_had(site: Site, tmp_path: pathlib.Path) -> None:
    """There is nothing to keep: nobody else is on it."""
    site.environment |= installations.without_library(tmp_path)
    for options in (("--exclusive",), ("--limits", "nvidia.com/gpu=1")):
        assert _ran(site, "printenv", "PARTAGE_FENCE", options=options) == "advisory\n"


def test_a_share_in_an_advisory_share_is_refused_too(site: Site, tmp_path: pathlib.Path) -> None:
    """Whether a fence holds makes no difference."""
    site.environment |= installations.without_library(tmp_path)
    inner = [str(sites.PARTAGE), "run", *SHARE, "--", "echo", "never"]
    done = site.partage("run", *SHARE, "--fence", "advisory", "--name", "outer", "--", *inner)
    assert done.returncode == 2
    assert "already a program with a share (outer)" in done.stderr
