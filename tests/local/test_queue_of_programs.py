"""Programs that wait: the first to come starts first, and one that leaves leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import pathlib
import pty
import re
import signal
import subprocess
import sys
import termios
import time

from partage.local.ledger import ledger
from partage.local.queue import wakeup
from partage.local.state import leases
from tests.local import foreign_programs, sites


def _waiting(site: sites.Site, *options: object, name: str) -> subprocess.Popen[str]:
    """A program in the queue; it writes its name to a file when it starts."""
    log = site.folder.parent / "order"
    command = ["sh", "-c", f"echo {name} >> {log}; sleep 0.3"]
    process = site.run("--name", name, *options, command=command)
    sites.eventually(lambda: name in site.queued())
    return process


def _order(site: sites.Site) -> list[str]:
    return (site.folder.parent / "order").read_text("ascii").split()


def test_equals_start_in_the_order_in_which_they_came(site: sites.Site) -> None:
    """Four who each want a whole card, while one has both."""
    holder = site.holding("--exclusive", "--cards", "2")
    waiting = [_waiting(site, "--exclusive", "--card", 0, name=f"w{i}") for i in range(4)]
    holder.kill()
    for process in waiting:
        process.wait(timeout=sites.PATIENCE_S)

    assert _order(site) == ["w0", "w1", "w2", "w3"]


def test_priority_comes_first(site: sites.Site) -> None:
    """The last to come, with the highest priority, starts first, and the lowest starts last."""
    holder = site.holding("--exclusive", "--cards", "2")
    waiting = [
        _waiting(site, "--exclusive", "--card", 0, "--priority", priority, name=name)
        for name, priority in (("low", -5), ("usual", 0), ("high", 10))
    ]
    assert site.names("waiting") == ["high", "usual", "low"]
    holder.kill()
    for process in waiting:
        process.wait(timeout=sites.PATIENCE_S)

    assert _order(site) == ["high", "usual", "low"]


def test_a_small_one_passes_where_it_delays_nobody_and_waits_where_it_would(
    site: sites.Site,
) -> None:
    """One of 16 GiB waits for a card; 4 GiB beside it would be in its way, on either card."""
    site.holding("--memory", "10GiB", "--card", 0)
    site.holding("--memory", "10GiB", "--card", 1)
    large = _waiting(site, "--memory", "12GiB", name="large")

    passed = site.partage("run", "--memory", "4GiB", "--no-wait", "--", "echo", "ran")
    refused = site.partage("run", "--memory", "5GiB", "--no-wait", "--", "echo", "ran")

    assert passed.stdout == "ran\n"  # 12 and 4 are 16, whichever ends
    assert refused.returncode == 75
    assert "it would delay large, which comes first" in refused.stderr
    assert large.poll() is None


def test_whoever_would_delay_another_is_told_just_that(site: sites.Site) -> None:
    """Not that there is no room, for there is."""
    site.holding("--memory", "8GiB", "--card", 0)
    site.holding("--memory", "8GiB", "--card", 1)
    _waiting(site, "--memory", "12GiB", name="large")

    refused = site.partage("run", "--memory", "5GiB", "--no-wait", "--", "true")

    assert refused.returncode == 75
    assert "partage: there is room, but it would delay large, which comes first;" in refused.stderr


def test_the_kernel_rings_for_those_who_wait_when_a_program_is_killed(site: sites.Site) -> None:
    """Nobody has to look again and again: the end of a program's last process wakes them."""
    holder = site.holding("--memory", "16GiB")
    with wakeup.watching(site.state().leases) as wakeups:
        assert not wakeups.wait(0)
        holder.kill()

        assert wakeups.wait(sites.PATIENCE_S)
        assert not wakeups.wait(0)


def test_a_bell_is_rung_without_giving_up_the_lease(site: sites.Site) -> None:
    """Opening and closing one's own lease wakes the others, and its lock stays."""
    site.holding("--memory", "16GiB")
    folder = site.state().leases
    (token,) = leases.tokens(folder)
    with wakeup.watching(folder) as wakeups:
        wakeup.send(folder / token)

        assert wakeups.wait(sites.PATIENCE_S)
    lease = leases.find(folder, token)
    assert lease is not None
    assert lease.locked


def test_the_first_who_dies_in_the_queue_is_followed_by_the_second(site: sites.Site) -> None:
    """The one that decides for all is killed; the next takes over, though nobody has told it."""
    holder = site.holding("--exclusive", "--cards", "2")
    first = _waiting(site, "--exclusive", "--card", 0, name="first")
    second = _waiting(site, "--exclusive", "--card", 0, name="second")
    first.kill()
    holder.kill()

    assert second.wait(timeout=sites.PATIENCE_S) == 0
    assert _order(site) == ["second"]


def test_a_first_one_that_hangs_holds_nobody_up(site: sites.Site) -> None:
    """The first one's terminal takes no more output (Ctrl-S): the next decides in its place."""
    holder = site.holding("--exclusive", "--cards", "2")
    leader, follower = pty.openpty()
    first = site.run(
        *("--exclusive", "--card", 0, "--name", "first"), command=["true"], stderr=follower
    )
    sites.eventually(lambda: site.queued() == ["first"])
    termios.tcflow(follower, termios.TCOOFF)
    second = _waiting(site, "--exclusive", "--card", 1, name="second")
    sites.eventually(lambda: _hangs(first.pid))
    holder.kill()

    assert second.wait(timeout=sites.PATIENCE_S) == 0
    assert first.poll() is None
    termios.tcflow(follower, termios.TCOON)
    assert first.wait(timeout=sites.PATIENCE_S) == 0
    os.close(leader)
    os.close(follower)


def _hangs(pid: int) -> bool:
    """Whether it waits for its terminal."""
    return "tty" in pathlib.Path(f"/proc/{pid}/wchan").read_text("ascii") or _write(pid)


def _write(pid: int) -> bool:
    """Where the kernel does not name the function: it is in a write."""
    return pathlib.Path(f"/proc/{pid}/syscall").read_text("ascii").startswith("1 ")


def test_a_foreign_process_in_the_way_is_named(site: sites.Site) -> None:
    """Beside the programs, and where there are none."""
    with foreign_programs.on(site) as strangers:
        strangers.using(12 * 1024, card=0)
        (foreign,) = site.view()["foreign"]
        late = site.partage("run", "--memory", "9GiB", "--card", 0, "--wait", "1s", "--", "true")

    assert late.returncode == 75
    assert f"held by process {foreign['pid']} (not started by partage)" in late.stderr


def test_ctrl_c_leaves_the_queue_cleanly(site: sites.Site) -> None:
    """Exit code 130, no row, no lease, no traceback."""
    site.holding("--exclusive", "--cards", "2")
    waiting = _waiting(site, "--memory", "4GiB", name="gone")
    waiting.send_signal(signal.SIGINT)
    _, err = waiting.communicate(timeout=sites.PATIENCE_S)

    assert waiting.returncode == 130
    assert "Traceback" not in err
    assert site.names("waiting") == []
    with site.book() as book:
        assert "gone" not in [entry.name for entry in book.all()]
    assert len(list(site.state().leases.iterdir())) == 1


def test_waiting_ends_when_its_time_is_over(site: sites.Site) -> None:
    """Exit code 75, and the text says what was missing and what to do."""
    site.holding("--exclusive", "--cards", "2")

    late = site.partage("run", "--memory", "4GiB", "--wait", "1s", "--", "echo", "ran")

    assert late.returncode == 75
    assert late.stdout == ""
    assert "there is no room now: card 0 is taken whole" in late.stderr
    assert site.names("waiting") == []


def test_a_terminal_shows_place_reason_and_holder(site: sites.Site) -> None:
    """And nothing of it is left when the program starts."""
    holder = site.holding("--memory", "16GiB", "--cards", "2", "--name", "hog")
    leader, follower = pty.openpty()
    os.set_blocking(leader, False)
    process = site.run(
        "--memory", "4GiB", "--name", "me", command=["echo", "ran"],
        stdin=follower, stdout=follower, stderr=follower, env={"TERM": "xterm"},
    )  # fmt: skip
    seen = bytearray()

    def shown(text: str) -> bool:
        with contextlib.suppress(BlockingIOError):
            seen.extend(os.read(leader, 1 << 16))
        return text in seen.decode()

    sites.eventually(lambda: shown("Ctrl-C leaves the queue"))
    text = seen.decode()
    assert re.search(r"partage: place 1 of 1 \(\d+s\): me waits for 1 card, 4096 MiB\r\n", text)
    assert "card 0 has 0 of 4096 MiB free, card 1 has 0 of 4096 MiB free" in text
    assert re.search(r"held by hog \(\w+, \d+s\)", text)
    holder.kill()
    sites.eventually(lambda: shown("ran\r\n"))
    assert "\x1b[J" in seen.decode().rpartition("Ctrl-C leaves the queue")[2]
    process.wait(timeout=sites.PATIENCE_S)
    os.close(leader)
    os.close(follower)


def test_a_narrow_terminal_shows_place_time_and_all_of_the_reason(site: sites.Site) -> None:
    """A long name is shortened; what does not fit in a line goes on in the next."""
    site.holding("--memory", "16GiB", "--cards", "2", "--name", "hog")
    text = _said_on_a_terminal(site, "--name", "a-name-" * 8 + "of-mine", columns=40)
    rows = re.sub(r"\x1b\[\d*[FJ]", "", text).splitlines()
    start = max(i for i, row in enumerate(rows) if "partage: place" in row)
    shown = rows[start : rows.index("  Ctrl-C leaves the queue", start)]

    assert all(len(row) < 40 for row in shown)
    assert re.fullmatch(r"partage: place 1 of 1 \(\d+s\):", shown[0])
    assert shown[1] == "    a-name-...f-mine waits for 1 card,"
    assert "card 1 has 0 of 4096 MiB free" in " ".join(row.strip() for row in shown)


def test_a_terminal_that_cannot_move_its_cursor_gets_plain_lines(site: sites.Site) -> None:
    """As a log does: what is written stays."""
    site.holding("--memory", "16GiB", "--cards", "2", "--name", "hog")
    text = _said_on_a_terminal(site, "--name", "me", columns=80, kind="dumb")

    assert "\x1b" not in text
    assert text.count("me waits for 1 card, 4096 MiB; card 0 has 0 of 4096 MiB free") == 1


def _said_on_a_terminal(
    site: sites.Site, *options: object, columns: int, kind: str = "xterm"
) -> str:
    """What one who waits for a while is told on a terminal of so many columns."""
    leader, follower = pty.openpty()
    termios.tcsetwinsize(follower, (24, columns))
    late = site.run(
        *("--memory", "4GiB", "--wait", "1s", *options),
        command=["true"],
        stderr=follower,
        env={"TERM": kind},
    )
    os.close(follower)
    said = bytearray()
    with contextlib.suppress(OSError):  # how a terminal ends
        while part := os.read(leader, 1 << 16):
            said += part
    os.close(leader)
    assert late.wait(timeout=sites.PATIENCE_S) == 75
    return said.decode()


_IN_THE_BACKGROUND = """
import os, subprocess, sys
os.setsid()
os.close(os.open(os.ttyname(2), os.O_RDWR))  # the terminal controls this session from now on
waiter = subprocess.Popen(sys.argv[1:], process_group=0)
os.tcsetpgrp(2, os.getpgrp())
waiter.wait()
"""


def test_a_job_in_the_background_does_not_draw_over_the_shell(site: sites.Site) -> None:
    """One plain line, though its standard error is a terminal; as one job of a shell."""
    site.holding("--memory", "16GiB", "--cards", "2")
    leader, follower = pty.openpty()
    command = [str(sites.PARTAGE), *("run", "--memory", "4GiB", "--wait", "3s", "--", "true")]
    shell = subprocess.Popen(
        [sys.executable, "-c", _IN_THE_BACKGROUND, *command],
        env=site.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=follower,
    )
    shell.wait(timeout=sites.PATIENCE_S)
    said = os.read(leader, 1 << 16).decode()
    os.close(leader)
    os.close(follower)

    assert said.count("waits for 1 card, 4096 MiB") == 1
    assert "\x1b" not in said


def test_a_log_gets_a_line_for_each_place(site: sites.Site, tmp_path: pathlib.Path) -> None:
    """Without a terminal nothing is drawn over."""
    holder = site.holding("--memory", "16GiB", "--cards", "2", "--name", "hog")
    waiting = _waiting(site, "--memory", "4GiB", name="me")
    assert waiting.stderr is not None
    first_line = next(line for line in waiting.stderr if "waits" in line)
    holder.kill()
    rest = waiting.stderr.read()

    assert "place 1 of 1" in first_line
    assert "waits" not in rest
    assert "\x1b" not in first_line + rest


def test_what_can_never_fit_is_refused_at_once(site: sites.Site) -> None:
    """Exit code 2 and the reason, whatever is free now."""
    for options, reason in (
        (("--memory", "17GiB"), "the largest card of this machine has 16384 MiB; ask for less m"),
        (("--memory", "1GiB", "--cards", "3"), "this machine has 2; ask for fewer cards"),
        (("--exclusive", "--model", "A100"), "model A100; this machine has Simulated GPU;"),
    ):
        refused = site.partage("run", *options, "--", "echo", "ran")
        assert refused.returncode == 2
        assert refused.stdout == ""
        assert "this can never fit" in refused.stderr
        assert reason in refused.stderr


def test_a_name_is_given_once(site: sites.Site) -> None:
    """A second program of the same name is refused while the first lives, and not afterwards."""
    first = site.holding("--memory", "1GiB", "--name", "train")
    refused = site.partage("run", "--memory", "1GiB", "--name", "train", "--", "echo", "ran")
    assert refused.returncode == 2
    assert "a program named 'train' exists already" in refused.stderr
    first.kill()
    first.wait()

    assert site.partage("run", "--memory", "1GiB", "--name", "train", "--", "true").returncode == 0


def test_a_share_is_granted_after_its_holder_has_ended(site: sites.Site) -> None:
    """However long a newcomer waited for the ledger: its own start is not the time that counts."""
    holder = site.holding("--exclusive", "--cards", "2")
    with site.book() as book:
        with book.deciding():
            newcomer = site.run("--exclusive", command=["sleep", "600"])
            sites.eventually(lambda: _has_open(newcomer, site.folder / "ledger.db"))
            holder.kill()
            holder.wait(timeout=sites.PATIENCE_S)
            ended_s = time.time()
        sites.eventually(lambda: _granted_s(book, newcomer) is not None)
        granted_s = _granted_s(book, newcomer)

    assert granted_s is not None
    assert granted_s >= ended_s


def _granted_s(book: ledger.Ledger, process: subprocess.Popen[str]) -> float | None:
    return next((entry.granted_at for entry in book.all() if entry.pid == process.pid), None)


def _has_open(process: subprocess.Popen[str], path: pathlib.Path) -> bool:
    descriptors = pathlib.Path(f"/proc/{process.pid}/fd")
    with contextlib.suppress(FileNotFoundError):  # one that was closed meanwhile
        return any(link.readlink() == path for link in descriptors.iterdir())
    return False
