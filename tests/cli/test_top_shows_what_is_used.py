"""``partage top``, run as people run it: with an agent, with a folder of fences, on a terminal."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pathlib
import re
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator

import msgspec
import pytest
import pytest_asyncio
from aiohttp import test_utils
from aiohttp import web as aiohttp_web

from partage.agent import reports, web
from partage.agent.metrics import current_names
from partage.core.problems import Problem
from partage.fence.store import limits
from tests.agent import node_reports
from tests.agent.node_reports import FIRST, MIB, SECOND
from tests.cli import fake_cluster, top_terminals
from tests.native import fenced


class Agent:
    """An agent whose container gets 30 % of a card's time, and waits for half of it."""

    def __init__(self) -> None:
        self.problems: tuple[Problem, ...] = ()

    def report(self) -> reports.Report:
        """At this moment."""
        now_ns = time.time_ns()
        works = node_reports.card_usage(
            used_bytes=3900 * MIB,
            peak_bytes=4096 * MIB,
            refused=2,
            busy_ns=now_ns * 3 // 10,
            throttled_ns=now_ns // 2,
            launches=10,
        )
        train = node_reports.container(node_reports.share(compute_percent=30))
        whole = node_reports.container(
            node_reports.share(SECOND, 24576, exclusive=True), name="all\x1b[2J"
        )
        return node_reports.report(
            *node_reports.granted("train", train, fence="hook", tenant="t"),
            *node_reports.granted("whole", whole),
            used=node_reports.used("t", works),
            measured={FIRST: reports.Measured(used_mib=4100, utilization_percent=31)},
            unhealthy={SECOND: "Xid 79: it has fallen off the bus"},
            taken_ns=now_ns,
            problems=self.problems,
        )


@pytest_asyncio.fixture
async def agent() -> AsyncIterator[str]:
    """The address of an agent."""
    parts = web.Parts(Agent().report, lambda: "", current_names.Metrics())
    async with test_utils.TestServer(web.application(parts)) as server:
        yield str(server.make_url("/"))


async def top(*arguments: object, **environment: str) -> fake_cluster.Result:
    """Run ``partage top``."""
    words = map(str, arguments)
    return await fake_cluster.run(
        "partage", "top", *words, environ={"PATH": os.environ["PATH"], **environment}
    )


async def test_cards_and_containers_of_an_agent(agent: str) -> None:
    """Asked and used side by side; what nobody knows is N/A; no colours in a pipe."""
    result = await top("--once", "--agent", agent)

    assert (result.code, result.err) == (0, "")
    cards, containers, problems = (block.splitlines() for block in result.out.split("\n\n"))
    assert cards[0].split() == [
        *("CARD", "MODEL", "HEALTH", "MEMORY", "USED(MiB)", "GRANTED(MiB)", "TOTAL(MiB)"),
        *("COMPUTE", "GRANTED", "TENANTS"),
    ]
    assert cards[1].split() == [
        *("0", "Tesla", "T4", "healthy", "25%", "4100", "4096", "16384", "31%", "30%", "1")
    ]
    assert cards[2].split() == [
        *("1", "N/A", "unhealthy", "N/A", "N/A", "24576", "24576", "N/A", "0%", "1")
    ]
    assert containers[0].split() == [
        *("CARD", "NAMESPACE", "POD", "CONTAINER", "ASKED(MiB)", "USED(MiB)", "PEAK(MiB)"),
        *("REFUSED", "COMPUTE", "GOT", "WAITED", "FENCE"),
    ]
    assert containers[1].split() == [
        *("0", "lab", "train", "main", "4096", "3900", "4096", "2", "30%", "30%", "50%", "hook")
    ]
    assert containers[2].split() == [
        *("1", "lab", "whole", "all?[2J", "24576", *["N/A"] * 3, "all", *["N/A"] * 3)
    ]
    assert problems[1].split(maxsplit=2) == ["card", "1", "Xid 79: it has fallen off the bus"]
    assert "\x1b" not in result.out


async def test_json_is_the_report_with_rates(agent: str) -> None:
    """For programs: in bytes and nanoseconds, and what was got in the last second."""
    result = await top("-o", "json", "--agent", agent)

    report = json.loads(result.out)
    assert (report["kind"], report["node"]) == ("Report", node_reports.NODE)
    train, whole = report["containers"]
    assert (train["used_bytes"], train["refused"], train["fence"]) == (3900 * MIB, 2, "hook")
    assert train["got_percent"] == pytest.approx(30)
    assert train["throttled_percent"] == pytest.approx(50)
    assert (whole["used_bytes"], whole["got_percent"]) == (None, None)


@pytest.fixture
def machine(tmp_path: pathlib.Path) -> Iterator[fenced.Machine]:
    """A simulated machine with two cards."""
    with fenced.machine(tmp_path, "2x16GiB") as made:
        yield made


async def test_tenants_of_a_folder_without_an_agent(machine: fenced.Machine) -> None:
    """A real program behind a real fence: its memory, its refusals, its share of the time."""
    tenant = machine.tenant("job-17", mode=limits.Mode.FIXED, share_millionths=400_000)
    other = machine.tenant("job-18", cards=(1,), memory_bytes=limits.NO_QUOTA)
    process = tenant.started()
    process("from timed_kernels import *")
    process("alloc(100 * MIB)")
    assert process.code("alloc(2 * GIB)") == fenced.OUT_OF_MEMORY
    process.tell("[launch(1000, blocks=100) for _ in range(20000)]; call('cuCtxSynchronize')")

    result = await top("-o", "json", "--root", machine.root.path, **machine.environment)

    report = json.loads(result.out)
    assert [card["used_mib"] for card in report["cards"]] == [356, 0]
    assert [card["granted_mib"] for card in report["cards"]] == [1024, 0]
    mine, idle = report["containers"]
    assert (mine["uid"], mine["pod"], mine["index"], mine["memory_mib"]) == ("job-17", "", 0, 1024)
    assert (mine["used_bytes"] // MIB, mine["refused"]) == (356, 1)  # and half a KiB of code
    assert 0 < mine["got_percent"] < 60  # of 40, and what a late launch may make up for
    assert mine["throttled_percent"] > 0
    assert (idle["uid"], idle["index"], idle["memory_mib"]) == (other.name, 1, 0)
    assert (idle["used_bytes"], idle["got_percent"]) == (0, None)


async def test_a_folder_is_shown_where_no_driver_is(machine: fenced.Machine) -> None:
    """Its tenants are there all the same, and what is missing is said."""
    machine.tenant("job-17")
    os.truncate(machine.tenant("broken").folder / "region", 3)

    result = await top("--once", PARTAGE_ROOT=str(machine.root.path))

    containers, problems = result.out.split("\n\n")
    assert containers.splitlines()[1].split()[:3] == ["N/A", "N/A", "job-17"]
    assert "broken" not in containers
    driver, broken = problems.splitlines()[1:]
    assert driver.startswith("driver ")
    assert broken.startswith("tenant broken")
    assert "has only 3 bytes" in broken


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--agent", "localhost:9437"], 2, "localhost:9437 is not an HTTP address; write one"),
        (["--agent", "http://127.0.0.1:1"], 1, "at http://127.0.0.1:1: Connection refused; check"),
        (
            ["--root", "/nowhere"],
            1,
            "/nowhere is not a folder of fences (No such file or directory)",
        ),
        (["-o", "xml"], 2, "'xml' is not one of"),
    ],
)
async def test_what_cannot_be_shown_is_one_line(arguments: list[str], code: int, says: str) -> None:
    """What, where, and what to do."""
    result = await top("--once", *arguments)

    assert (result.code, result.out) == (code, "")
    assert says in result.err
    assert result.err.count("\n") == 1


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (404, "no", "the server answers 404: no;"),
        (200, "<html>", "the server there is not an agent of Partage"),
        (200, '{"kind": "Report"}', "the server there is not an agent of Partage"),
        (503, "the folder is gone", "the server answers 503: the folder is gone;"),
    ],
)
async def test_whoever_else_answers_is_told_apart(status: int, body: str, says: str) -> None:
    """It may be another program on that port, or an agent that cannot read."""

    async def answer(_request: aiohttp_web.Request) -> aiohttp_web.Response:
        return aiohttp_web.Response(status=status, text=body)

    app = aiohttp_web.Application()
    app.router.add_get("/{path:.*}", answer)
    async with test_utils.TestServer(app) as server:
        result = await top("--once", "--agent", server.make_url("/"))

    assert (result.code, result.out) == (1, "")
    assert says in result.err
    assert result.err.count("\n") == 1


async def test_a_proxy_is_not_asked(agent: str) -> None:
    """It could not reach the node's loopback."""
    result = await top("--once", "--agent", agent, http_proxy="http://127.0.0.1:1")

    assert (result.code, result.err) == (0, "")


def _terminal(*arguments: object, **environment: str) -> top_terminals.Terminal:
    words = (top_terminals.PROGRAM, "top", *arguments)
    return top_terminals.Terminal(*words, environment=environment)


def _live(agent: str, stop: Callable[[top_terminals.Terminal], None]) -> tuple[int, str]:
    terminal = _terminal("--agent", agent)
    terminal.until("train")
    terminal.until("train")  # a second later
    stop(terminal)
    with contextlib.closing(terminal):
        return terminal.end(), terminal.said


@pytest.mark.parametrize(
    "stop",
    [
        pytest.param(lambda terminal: terminal.press(b"xq"), id="q"),
        pytest.param(lambda terminal: terminal.running.send_signal(signal.SIGINT), id="interrupt"),
    ],
)
async def test_it_lives_on_a_terminal_until_q(
    agent: str, stop: Callable[[top_terminals.Terminal], None]
) -> None:
    """Drawn anew each second, in colours, with bars, on a screen that is given back."""
    code, said = await asyncio.to_thread(_live, agent, stop)

    assert code == 0, said
    assert said.count("train") >= 2
    assert re.search(r"█+░+", said)
    assert "\x1b[31m" in said  # two refused allocations are red
    assert said.index("\x1b[?1049h") < said.index("\x1b[?1049l")  # the other screen, and back
    assert "30%" in said


def _keyed(agent: str) -> list[str]:
    with contextlib.closing(_terminal("--agent", agent)) as terminal:
        terminal.frame_with("train", "whole")
        terminal.press(b"K")
        terminal.frame_with("no program is selected")
        terminal.press(b"\x1b[B")
        terminal.selected_until("train")
        terminal.press(b"K")
        frame = terminal.frame_with("`kubectl delete pod` ends it")
        terminal.press(b"q")
        assert terminal.end() == 0, terminal.said
        return frame


async def test_a_pod_is_not_signalled_from_here(agent: str) -> None:
    """Its containers may be on another node; the user is told what to do."""
    frame = await asyncio.to_thread(_keyed, agent)

    assert top_terminals.bare(frame[-1]).startswith("train is a pod; `kubectl delete pod` ends it")


async def test_an_agent_that_goes_away_is_waited_for() -> None:
    """What was there stays, with the reason; when the agent is back, so are its numbers."""
    gone = False

    async def answer(_request: aiohttp_web.Request) -> aiohttp_web.Response:
        if gone:
            return aiohttp_web.Response(status=503, text="starting anew")
        return aiohttp_web.Response(body=msgspec.json.encode(Agent().report()))

    app = aiohttp_web.Application()
    app.router.add_get(reports.PATH, answer)
    async with test_utils.TestServer(app) as server:
        terminal = await asyncio.to_thread(_terminal, "--agent", server.make_url("/"))
        await asyncio.to_thread(terminal.until, "train")
        gone = True
        await asyncio.to_thread(terminal.until, "starting anew")
        terminal.press(b"q")
        code = await asyncio.to_thread(terminal.end)
        terminal.close()

    assert code == 0, terminal.said


def _once(agent: str, **environment: str) -> str:
    with contextlib.closing(_terminal("--once", "--agent", agent, **environment)) as terminal:
        assert terminal.end() == 0, terminal.said
        return terminal.said


async def test_colours_are_for_terminals_that_want_them(agent: str) -> None:
    """As everywhere else."""
    coloured = await asyncio.to_thread(_once, agent)
    plain = await asyncio.to_thread(_once, agent, NO_COLOR="1")

    assert "\x1b[" in coloured
    assert "\x1b" not in plain
