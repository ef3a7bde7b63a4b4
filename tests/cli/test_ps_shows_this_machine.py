"""``partage ps``: cards, tenants, the queue, foreigners and problems, for people and programs."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Callable, Iterator

import msgspec
import pytest

from partage.cli.commands import ps
from partage.cli.display import drawing, machine_page, pages, table_cells
from partage.core.problems import Problem
from partage.fence import usage_rows
from partage.local.view import views
from tests.cli import fake_cluster, ps_views, top_terminals


class Machine:
    """Views one after the other, and the time that passes between them."""

    def __init__(self, view: views.View) -> None:
        self._view = view
        self.taken = 0
        self.waited_s = 0.0

    def take(self) -> views.View:
        """What is there now: tenants that count get 30 % of the time, and wait for 150 %."""
        self.taken += 1
        passed_ns = int(self.waited_s * 1e9)
        counters = {"busy_ns": passed_ns * 3 // 10, "throttled_ns": passed_ns * 3 // 2}
        tenants = (
            tenant if tenant.busy_ns is None else msgspec.structs.replace(tenant, **counters)
            for tenant in self._view.tenants
        )
        taken_ns = self._view.taken_ns + passed_ns
        return msgspec.structs.replace(self._view, tenants=tuple(tenants), taken_ns=taken_ns)

    def wait(self, seconds: float) -> None:
        """Time passes."""
        self.waited_s += seconds


Shown = Callable[..., list[list[str]]]


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str]) -> Shown:
    """The blocks that are printed of a view, as lines."""

    def show(view: views.View, output: str = "table") -> list[list[str]]:
        machine = Machine(view)
        ps.show(machine.take, output, wait=machine.wait)
        return [block.splitlines() for block in capsys.readouterr().out.split("\n\n")]

    return show


def test_everything_at_once(shown: Shown) -> None:
    """Who has what, in the columns that people know; what nobody can tell is N/A."""
    view = ps_views.view(
        ps_views.tenant(),
        ps_views.untold("whole", user="bob", uuid=ps_views.SECOND, fence="starting"),
        cards=(
            ps_views.card(0, used_mib=4100, utilization_percent=31, granted_mib=4096, tenants=1),
            ps_views.card(1, used_mib=None, utilization_percent=None, model=None, free_mib=-300),
        ),
        waiting=(ps_views.waiting(),),
        foreign=(ps_views.foreign(),),
        problems=(Problem("program whole", "its fence is damaged"),),
    )

    heading, cards, tenants, queue, foreign, problems = shown(view)

    assert heading == ["lab-1  2 cards  ledger /var/lib/partage/local (shared)"]
    assert cards[0].split() == ["CARD", "MODEL", "HEALTH", "MEMORY", "FREE", "COMPUTE"]
    assert cards[1].split() == ["0", "Tesla", "T4", "healthy", "4/16Gi", "16Gi", "31%"]
    assert cards[2].split() == ["1", "N/A", "healthy", "-/16Gi", "-300Mi", "N/A"]
    assert tenants[0].split() == [
        *("NAME", "USER", "CARD", "ASKED", "USED", "PEAK", "COMPUTE", "FENCE", "AGE")
    ]
    assert tenants[1].split() == [
        *("train", "alice", "0", "4Gi", "3.8Gi", "4Gi", "30/30%", "hook", "5m30s")
    ]
    assert tenants[2].split() == [
        *("whole", "bob", "N/A", "4Gi", "N/A", "N/A", "all", "starting", "5m30s")
    ]
    assert queue[1].split(maxsplit=4) == ["1", "large", "bob", "5", "1 card, 14336 MiB  65s"]
    assert foreign[1].split() == ["99", "1", "N/A", "300Mi", "N/A"]
    assert problems[1].split(maxsplit=2) == ["program", "whole", "its fence is damaged"]


@pytest.mark.parametrize("form", ["table", "wide"])
def test_a_share_without_a_memory_limit_has_all_of_it(shown: Shown, form: str) -> None:
    """It may use the whole card; 0 would say that it may use nothing."""
    _, _, tenants = shown(ps_views.view(ps_views.tenant(memory_mib=0)), form)

    assert tenants[1].split()[3] == "all"


@pytest.mark.parametrize("where", ["in a pipe", "on a terminal"])
def test_the_table_has_room_in_80_columns(where: str) -> None:
    """In a pipe, and with its bars on a terminal; nobody wants to read a table that is wrapped."""
    names = ("train-resnet50-a", "evaluation-night", "sweep-learning-7")
    tenants = [
        ps_views.tenant(name, user="longuser", memory_mib=12800, used_bytes=12790 * ps_views.MIB)
        for name in names
    ]
    whole = ps_views.untold("preprocess-video", user="longuser", memory_mib=16384)
    view = ps_views.view(
        *(*tenants, whole),
        cards=tuple(
            ps_views.card(index, model="NVIDIA A100-SXM4-80GB", used_mib=13000) for index in (0, 1)
        ),
        waiting=(ps_views.waiting("waits-for-a-card", user="longuser"),),
        foreign=(ps_views.foreign(user="longuser", command="python -m ipykernel_launcher"),),
    )
    rates = {tenant.key: usage_rows.Rate(100.0, 0.0) for tenant in tenants}

    page = machine_page.page(view, rates, pages.Form.NARROW)
    written = drawing.plain(page) if where == "in a pipe" else drawn(page)

    assert all(name in written for name in names)
    assert max(map(len, written.splitlines())) <= 80


def drawn(page: pages.Page) -> str:
    """As a terminal gets it, without colours."""
    pen = drawing.Pen("utf-8")
    return "\n".join(line.plain for block in page.blocks for line in drawing.table(block, pen))


def test_wide_tells_more(shown: Shown) -> None:
    """To the MiB; why one waits, numbers of processes, and the command at the end."""
    _, cards, tenants, queue, foreign = shown(
        ps_views.view(
            ps_views.tenant(), waiting=(ps_views.waiting(),), foreign=(ps_views.foreign(),)
        ),
        "wide",
    )

    assert cards[0].split() == [*machine_page.CARD, *machine_page.CARD_WIDE]
    assert cards[1].split() == [
        *("0", "Tesla", "T4", "healthy", "0%", "0", "0", "16384", "16384", "0%", "0%", "0"),
        *("0", "40C", ps_views.FIRST),
    ]
    assert tenants[1].split()[:10] == [
        *("train", "alice", "0", "4096", "3900", "4096", "30%", "30%", "hook", "5m30s")
    ]
    assert tenants[0].split()[-10:] == list(machine_page.TENANT_WIDE)
    assert tenants[1].split()[-11:] == [
        *("4711", "0", "2", "fixed", "2", "150%", "partage", "token-of-train", ps_views.FIRST),
        *("python", "train.py"),
    ]
    assert queue[0].split()[-3:] == ["PID", "TOKEN", "REASON"]
    assert queue[1].endswith("card 0 has 12288 of 14336 MiB free")
    assert foreign[1].split() == ["99", "1", "N/A", "300", ps_views.SECOND, "N/A"]


@pytest.mark.parametrize("output", ["table", "wide"])
def test_simulated_cards_are_said_to_be_simulated(shown: Shown, output: str) -> None:
    """Nobody takes them for real ones."""
    view = ps_views.view(simulated=True, cards=(ps_views.card(),), shared=False)

    heading, *_ = shown(view, output)

    assert heading == ["lab-1  1 card (simulated)  ledger /var/lib/partage/local (of one user)"]


def test_json_is_the_view_with_rates(capsys: pytest.CaptureFixture[str]) -> None:
    """It reads back as the same view; tenants say what they got."""
    machine = Machine(ps_views.view(ps_views.tenant(), ps_views.untold("whole")))
    ps.show(machine.take, "json", wait=machine.wait)
    printed = capsys.readouterr().out

    train, whole = json.loads(printed)["tenants"]
    assert (train["got_percent"], train["throttled_percent"]) == (30, 150)
    assert (whole["got_percent"], whole["throttled_percent"]) == (None, None)
    assert msgspec.json.decode(printed, type=views.View) == machine.take()


def test_nobody_there(capsys: pytest.CaptureFixture[str]) -> None:
    """The cards all the same, a sentence beside them, and no second look that tells nothing."""
    machine = Machine(ps_views.view())

    ps.show(machine.take, "table", wait=machine.wait)

    printed = capsys.readouterr()
    assert printed.out.count("Tesla T4") == 2
    assert printed.err == "\nNothing runs under Partage here, and nobody waits.\n"
    assert (machine.taken, machine.waited_s) == (1, 0)


def test_two_looks_are_half_a_second_apart() -> None:
    """What was got needs both."""
    machine = Machine(ps_views.view(ps_views.tenant()))

    ps.show(machine.take, "table", wait=machine.wait)

    assert (machine.taken, machine.waited_s) == (2, 0.5)


def test_an_unhealthy_card_is_a_problem_told_once(shown: Shown) -> None:
    """Though its card says it and the list of problems says it too."""
    unhealthy = ps_views.card(1, healthy=False, reason="Xid 79")
    view = ps_views.view(cards=(unhealthy,), problems=(Problem("card 1", "Xid 79"),))

    _, cards, problems = shown(view)

    assert "unhealthy" in cards[1]
    assert problems[1:] == ["card 1  Xid 79"]


def test_names_of_others_do_not_move_the_cursor(shown: Shown) -> None:
    """A command may have any bytes in it."""
    view = ps_views.view(ps_views.tenant(command="python\x1b[2J\n\tx"))

    _, _, tenants = shown(view, "wide")

    assert tenants[1].endswith("python?[2J??x")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *((-5, "0s"), (0, "0s"), (119.9, "119s"), (120, "2m"), (330, "5m30s"), (600, "10m")),
        *((10799, "179m"), (10800, "3h"), (11100, "3h5m"), (28800, "8h"), (172799, "47h")),
        *((172800, "2d"), (180000, "2d2h"), (691200, "8d"), (10**9, "11574d")),
    ],
)
def test_ages_are_told_as_kubectl_does(seconds: float, text: str) -> None:
    """Two units where the smaller one matters."""
    assert table_cells.age(seconds).text == text


@pytest.mark.parametrize(
    ("mode", "percent", "ceiling", "text"),
    [
        *(("none", 0, None, "all"), ("fixed", 30, None, "30%"), ("burst", 30, 80, "30%-80%")),
        ("best-effort", 0, None, "best effort"),
    ],
)
def test_compute_is_told_as_it_was_asked(
    mode: str, percent: int, ceiling: int | None, text: str
) -> None:
    """With its ceiling, where it has one."""
    assert table_cells.asked(mode, percent, ceiling).text == text


@pytest.mark.parametrize(
    ("got_percent", "mode", "text"),
    [
        *((12.4, "fixed", "12/30%"), (None, "fixed", "-/30%"), (12.4, "burst", "12/30%-80%")),
        *((None, "none", "all"), (12.4, "none", "12%/all"), (None, "best-effort", "best effort")),
    ],
)
def test_what_one_got_stands_before_what_one_asked(
    got_percent: float | None, mode: str, text: str
) -> None:
    """With one unit; alone where nothing was counted, or no number was asked for."""
    assert table_cells.got(got_percent, table_cells.asked(mode, 30, 80)).text == text


@pytest.mark.parametrize(
    ("amount_mib", "text"),
    [
        *((None, "N/A"), (0, "0"), (1, "1Mi"), (1023, "1023Mi"), (1024, "1Gi"), (3900, "3.8Gi")),
        *((12800, "12.5Gi"), (81920, "80Gi"), (-300, "-300Mi"), (-2048, "-2Gi")),
    ],
)
def test_sizes_are_short(amount_mib: int | None, text: str) -> None:
    """And say their unit."""
    assert table_cells.rounded(table_cells.number(amount_mib)).text == text


@pytest.fixture
def terminal(tmp_path: pathlib.Path) -> Iterator[Callable[..., top_terminals.Terminal]]:
    """``partage ps`` on a simulated machine, on a terminal."""
    made = []

    def start(**environment: str) -> top_terminals.Terminal:
        words = (top_terminals.PROGRAM, "ps")
        environment = {**_machine(tmp_path), **environment}
        made.append(top_terminals.Terminal(*words, environment=environment))
        return made[-1]

    yield start
    for opened in made:
        opened.close()


def _machine(folder: pathlib.Path) -> dict[str, str]:
    return {"PARTAGE_STATE": str(folder / "state"), "PARTAGE_SIMULATE": "2x16GiB"}


def test_bars_and_colours_are_for_terminals(
    terminal: Callable[..., top_terminals.Terminal],
) -> None:
    """Without colours, where nobody wants them, it is what a pipe gets."""
    coloured, plain = terminal(), terminal(NO_COLOR="1")

    assert coloured.end() == 0, coloured.said
    assert plain.end() == 0, plain.said
    assert "░░░" in coloured.said
    assert "\x1b[" in coloured.said
    assert "2 cards (simulated)" in coloured.said
    assert "\x1b" not in plain.said
    assert "2 cards (simulated)" in plain.said


def test_a_terminal_without_utf8_gets_ascii(
    terminal: Callable[..., top_terminals.Terminal],
) -> None:
    """Bars too."""
    said = terminal(PYTHONIOENCODING="ascii")

    assert said.end() == 0, said.said
    assert "---------- 0/16Gi" in said.said
    assert "----------   0%" in said.said
    assert said.said.isascii()


async def test_the_command_in_a_pipe(tmp_path: pathlib.Path) -> None:
    """A real machine with simulated cards, and nobody on it yet."""
    environ = {"PATH": os.environ["PATH"], **_machine(tmp_path)}
    result = await fake_cluster.run("partage", "ps", environ=environ)

    assert result.code == 0, result
    heading, cards = result.out.rstrip("\n").split("\n\n")
    assert "2 cards (simulated)" in heading
    assert [line.split()[:4] for line in cards.splitlines()[1:]] == [
        [index, "Simulated", "GPU", "healthy"] for index in ("0", "1")
    ]
    assert result.err == "\nNothing runs under Partage here, and nobody waits.\n"


def test_a_bar_is_as_full_as_the_card() -> None:
    """And as grave; without a size there is none."""
    cells = [table_cells.bar(amount, 100) for amount in (None, 0, 59, 60, 89, 90, 120)]

    faint, good = table_cells.Tone.FAINT, table_cells.Tone.GOOD
    warning, bad = table_cells.Tone.WARNING, table_cells.Tone.BAD
    assert [cell.tone for cell in cells] == [faint, good, good, warning, warning, bad, bad]
    assert [cell.part for cell in cells] == [None, 0, 0.59, 0.6, 0.89, 0.9, 1.2]
    assert table_cells.bar(5, 0).text == table_cells.UNKNOWN
