"""A Watcher in a process of its own, on simulated cards that fall unhealthy and recover."""

from __future__ import annotations

import contextlib
import json
import pathlib
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from tests import simulated_machines

WATCH = """
import collections, json, sys, threading, time
from partage.devices import health, health_rules, context_measurement, nvml

def tell(said):
    sys.stdout.write(json.dumps(said) + "\\n")
    sys.stdout.flush()

quiet_s, settle_s, ignored, probe, left = json.loads(sys.argv[1])
before = {}
if left:
    with nvml.Nvml() as driver:
        before = {d.uuid: "left unhealthy" for d in driver.devices() if d.index in left}
looked = threading.Event()
done = collections.Counter()

class Watcher(health.Watcher):
    def _look(self):
        super()._look()
        done["looks"] += 1

def probed(uuid):
    made = context_measurement.can_make_context(uuid)
    done["probes"] += 1
    return made

def wait(what, more):
    until = done[what] + more
    while done[what] < until:
        time.sleep(0.01)

watcher = Watcher(
    lambda unhealthy: (looked.wait(), tell(unhealthy)),
    every_s=0.05,
    patience=health_rules.Patience(quiet_s=quiet_s, settle_s=settle_s),
    ignored=ignored,
    before=before,
    probe={"real": probed, "hangs": lambda uuid: time.sleep(3600)}[probe],
)
tell("watching")
with watcher:
    while not watcher._verdicts and "wait" in sys.argv:  # until the first look is over
        time.sleep(0.01)
    tell("looked")
    looked.set()
    for line in sys.stdin:
        what, count = line.split()
        wait(what, int(count))
        wait("looks", 2)  # one was under way before, and what the last found is told after it
        tell("done")
tell([[card.uuid, card.reason] for card in watcher.unhealthy])
"""
NEVER_S = 3600.0
OLD = "550.54"  # does not tell what it takes to recover a card
LOST = "lost: the card no longer answers"
ECC = "ECC: errors of memory that could not be corrected"
DEAF = {"capability": "1.3"}  # too old for events


class Watch:
    """A Watcher that runs: what it tells, and the machine it watches."""

    def __init__(self, process: subprocess.Popen[str], environment: dict[str, str]) -> None:
        self.process = process
        self._environment = environment
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        listed = self._simsmi("-L").splitlines()
        self.cards = [line.partition("UUID: ")[2].rstrip(")") for line in listed]
        self._last: object = {}

    def do(self, *words: object) -> None:
        """Have simsmi do something."""
        assert self._simsmi(*words) == ""

    def said(self) -> object:
        """The next thing that is told."""
        return json.loads(self._lines.get(timeout=30))

    def next_change(self) -> dict[int, str]:
        """The next change: unhealthy cards by their index. It must be one."""
        unhealthy = self.said()
        assert isinstance(unhealthy, dict)
        assert unhealthy != self._last
        self._last = unhealthy
        return {self.cards.index(uuid): reason for uuid, reason in unhealthy.items()}

    def tells_nothing(self, *, looks: int = 0, probes: int = 0) -> None:
        """Until it has looked, or tried contexts, so many times more."""
        self._ask(f"probes {probes}" if probes else f"looks {looks}")
        assert self.said() == "done"

    def end(self) -> object:
        """Stop it; what it says was the case then."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.said()

    def _ask(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)

    def _simsmi(self, *words: object) -> str:
        return subprocess.run(
            [simulated_machines.LIBRARIES / "simsmi", *map(str, words)],
            env=self._environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        ).stdout


Start = Callable[..., Watch]


@pytest.fixture
def start(tmp_path: pathlib.Path) -> Iterator[Start]:
    """Starts a Watcher on a machine with two cards; settings are those of the machine."""
    with contextlib.ExitStack() as stack:

        def started(
            *,
            quiet_s: float = NEVER_S,
            settle_s: float = 0.0,
            ignored: tuple[int, ...] = (),
            probe: str = "real",
            before: tuple[str, ...] = (),
            left: tuple[int, ...] = (),
            **settings: str,
        ) -> Watch:
            environment = simulated_machines.machine(tmp_path, **settings)
            for words in before:
                command = [str(simulated_machines.LIBRARIES / "simsmi"), *words.split()]
                subprocess.run(command, env=environment, check=True, timeout=30)
            process = stack.enter_context(
                subprocess.Popen(
                    [
                        *(sys.executable, "-c", WATCH),
                        json.dumps([quiet_s, settle_s, ignored, probe, left]),
                        *([] if before else ["wait"]),
                    ],
                    env=environment,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            stack.callback(process.kill)
            watch = Watch(process, environment)
            assert [watch.said(), watch.said()] == ["watching", "looked"]
            return watch

        yield started


def test_an_xid_makes_its_card_unhealthy_until_the_driver_asks_for_nothing_more(
    start: Start,
) -> None:
    """However many looks find that it still needs a reset."""
    watch = start()
    watch.do("xid", 0, 79)
    assert watch.next_change() == {0: "Xid 79: fallen off the bus"}
    watch.tells_nothing(looks=10)
    watch.do("heal", 0)
    assert watch.next_change() == {}


def test_what_an_application_did_is_not_held_against_a_card(start: Start) -> None:
    """Nor what somebody chose to ignore, nor the news that Xid 154 is."""
    watch = start(driver=OLD, ignored=(777,))
    for code in (13, 31, 43, 45, 68, 109, 154, 777):
        watch.do("xid", 0, code)
    watch.do("xid", 1, 778)
    assert watch.next_change() == {1: "Xid 778"}


def test_an_ignored_xid_after_which_the_driver_wants_a_reset_is_not_forgotten(
    start: Start,
) -> None:
    """What the driver says of a card counts, whatever came before."""
    watch = start(ignored=(777,))
    watch.do("xid", 0, 777)
    assert watch.next_change() == {0: "the driver asks to reset the card"}


def test_a_card_that_needed_a_reset_before_is_unhealthy_from_the_start(start: Start) -> None:
    """A new start of the agent heals nothing."""
    watch = start(before=("xid 1 48",))
    assert watch.next_change() == {1: "the driver asks to reset the card"}


def test_what_the_driver_says_at_once_is_not_believed(start: Start) -> None:
    """It may not have thought about the incident yet."""
    watch = start(settle_s=NEVER_S)
    watch.do("xid", 0, 48)
    assert list(watch.next_change()) == [0]
    watch.do("heal", 0)
    watch.tells_nothing(looks=10)


def test_an_event_of_no_card_is_one_of_all(start: Start) -> None:
    """Nobody knows which to trust."""
    watch = start()
    watch.do("alarm", 999)
    assert watch.next_change() == {0: "Xid 999", 1: "Xid 999"}
    assert watch.next_change() == {}  # no card asks for a reset


def test_errors_of_memory_are_told_by_their_event(start: Start) -> None:
    """And are over with the reset that the driver asks for."""
    watch = start()
    watch.do("ecc", 1, 3)
    assert watch.next_change() == {1: ECC}
    watch.tells_nothing(looks=5)
    watch.do("heal", 1)
    assert watch.next_change() == {}


def test_corrected_errors_make_no_card_unhealthy(start: Start) -> None:
    """They are what the correction is for."""
    watch = start()
    watch.do("soft", 0, 100)
    watch.tells_nothing(looks=5)
    watch.do("lose", 1)
    assert list(watch.next_change()) == [1]


def test_errors_of_memory_are_found_where_no_event_tells_them(start: Start) -> None:
    """By counting; and a counter that began anew says that the card was reset."""
    watch = start(driver=OLD, **DEAF)
    watch.do("ecc", 1, 3)
    assert watch.next_change() == {1: ECC}
    watch.do("heal", 1)
    assert watch.next_change() == {}


def test_errors_counted_before_are_the_past(start: Start) -> None:
    """A look compares with the look before."""
    watch = start(driver=OLD, before=("ecc 0 3",))
    watch.tells_nothing(looks=5)
    watch.do("ecc", 0, 1)
    assert watch.next_change() == {0: ECC}


@pytest.mark.parametrize("driver", ["615.71", OLD])
def test_a_lost_card_is_found_and_comes_back(start: Start, driver: str) -> None:
    """Without events, by looking; the other card has nothing to do with it."""
    watch = start(driver=driver, **DEAF)
    watch.do("lose", 0)
    assert watch.next_change() == {0: LOST}
    watch.tells_nothing(looks=5)
    watch.do("heal", 0)
    assert watch.next_change() == {}


@pytest.mark.parametrize("driver", ["615.71", OLD])
def test_a_card_is_heard_again_after_it_was_lost(start: Start, driver: str) -> None:
    """With its return the Xid that told its loss is over, and new ones are heard."""
    watch = start(driver=driver)
    watch.do("lose", 0)
    assert watch.next_change() == {0: "Xid 79: fallen off the bus"}
    watch.tells_nothing(looks=5)  # several looks: it is found to be lost
    watch.do("heal", 0)
    assert watch.next_change() == {}
    watch.do("xid", 0, 74)
    assert watch.next_change() == {0: "Xid 74: NVLink error"}


@pytest.mark.parametrize(("failed", "word"), [(0, "must be"), (1, "could not be")])
def test_rows_that_are_not_remapped_make_a_card_unhealthy(
    start: Start, failed: int, word: str
) -> None:
    """Those that wait for it, and those for which it failed; until they no longer are."""
    watch = start()
    watch.do("remap", 1, failed)
    [(index, reason)] = watch.next_change().items()
    assert index == 1
    assert word in reason
    watch.do("heal", 1)
    assert watch.next_change() == {}


def test_without_the_drivers_word_a_context_must_prove_it(start: Start) -> None:
    """It is tried again and again, and made only when the card was reset."""
    watch = start(driver=OLD, quiet_s=0.3)
    watch.do("xid", 0, 74)
    assert watch.next_change() == {0: "Xid 74: NVLink error"}
    watch.tells_nothing(probes=3)
    watch.do("heal", 0)
    assert watch.next_change() == {}


@pytest.mark.parametrize("driver", ["615.71", OLD])
def test_a_card_that_was_left_unhealthy_must_prove_that_it_is_well(
    start: Start, driver: str
) -> None:
    """The watcher before knew of an Xid that nobody tells twice."""
    watch = start(driver=driver, quiet_s=0.5, settle_s=0.5, left=(1,))
    assert watch.next_change() == {1: "left unhealthy"}
    assert watch.next_change() == {}


def test_without_the_drivers_word_a_card_must_have_been_quiet(start: Start) -> None:
    """A context alone does not make it well."""
    watch = start(driver=OLD, quiet_s=NEVER_S)
    watch.do("xid", 0, 74)
    watch.do("heal", 0)
    assert list(watch.next_change()) == [0]
    watch.tells_nothing(looks=10)


def test_a_context_that_hangs_does_not_stop_the_watch(start: Start) -> None:
    """Its card stays unhealthy, and the others are watched."""
    watch = start(driver=OLD, quiet_s=0.0, probe="hangs")
    watch.do("xid", 0, 74)
    assert list(watch.next_change()) == [0]
    watch.tells_nothing(looks=5)
    watch.do("lose", 1)
    assert list(watch.next_change()) == [0, 1]


def test_all_cards_are_unhealthy_while_the_driver_is_gone(start: Start) -> None:
    """And well again, and heard again, when it is back."""
    watch = start()
    watch.do("unload")
    assert watch.next_change() == dict.fromkeys((0, 1), "NVML: Driver Not Loaded")
    watch.tells_nothing(looks=5)
    watch.do("load")
    assert watch.next_change() == {}
    watch.do("xid", 1, 79)
    assert list(watch.next_change()) == [1]


def test_a_watcher_may_start_before_the_driver(start: Start) -> None:
    """It knows no cards until then."""
    watch = start(before=("unload",))
    watch.tells_nothing(looks=5)
    watch.do("load")
    watch.tells_nothing(looks=1)  # which finds the cards, and listens to them
    watch.do("xid", 1, 79)
    assert list(watch.next_change()) == [1]


def test_a_watcher_that_is_stopped_knows_who_was_unhealthy(start: Start) -> None:
    """And its process ends."""
    watch = start()
    watch.do("xid", 1, 79)
    watch.next_change()
    assert watch.end() == [[watch.cards[1], "Xid 79: fallen off the bus"]]
    assert watch.process.wait(30) == 0
