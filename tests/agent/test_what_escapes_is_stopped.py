"""What containers hold beside their fences is told, and the process ended if that was chosen."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from partage.agent import foreign_use, watch
from partage.agent.containers import cdi
from partage.agent.pods import node_pods
from partage.devices import nvml
from partage.dialects import pods
from partage.fence import processes, usage
from partage.fence.store import limits, locks, roots, tenants
from partage.fence.watch import escapes
from partage.fence.watch.escapes import Then
from tests import leaving_out
from tests.agent import agent_node, orphans

UID = "0f1c2d3e-aaaa-bbbb-cccc-0123456789ab"
CONTAINER = "a" * 64
TENANT = f"{UID}.main"
MIB = 1 << 20
GIB = 1 << 30
HIERARCHY = Path("/sys/fs/cgroup/freezer")


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """A cgroup that is named as that of the container."""
    around = HIERARCHY / f"partage-test-{os.getpid()}"
    inside = around / f"pod{UID}" / CONTAINER
    try:
        inside.mkdir(parents=True)
    except OSError:
        leaving_out.leave_out("cgroups", "run the tests as root, with cgroups of version 1")
    yield inside
    for folder in (inside, inside.parent, around):
        folder.rmdir()


@pytest.fixture
def process(cgroup: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process in that cgroup."""
    with _sleeping() as running:
        (cgroup / "cgroup.procs").write_text(str(running.pid))
        yield running


@contextlib.contextmanager
def _sleeping() -> Iterator[subprocess.Popen[bytes]]:
    running = subprocess.Popen(["sleep", "600"])
    yield running
    running.kill()
    running.wait()


class Node:
    """A node with one container, on the first card, and a driver that says what it is told to."""

    def __init__(self, root: roots.Root, *, priority_class: str = "", **policy: object) -> None:
        card = limits.CardLimits(
            uuid=agent_node.uuid(0), memory_bytes=2 * GIB, context_bytes=256 * MIB
        )
        tenants.create(root, TENANT, limits.Limits((card,)))
        self.root = root
        self.facts = agent_node.facts()
        self.held: dict[int, int] = {}
        self.messages: list[tuple[str, str, bool]] = []
        self.counted: list[tuple[escapes.Kind, Then]] = []
        self.others: list[foreign_use.Look] = []
        self.now_s = 1000.0
        began = cdi.Started(
            uid=UID,
            container="main",
            resource="r",
            fence="hook",
            tenant=TENANT,
            device="d",
            grant="",
        )
        pod = node_pods.Pod(
            metadata=pods.Metadata(name="one", namespace="lab", uid=UID),
            spec=node_pods.Spec(priority_class_name=priority_class),
        )
        self.watch = watch.Watch(
            root,
            self.facts,
            agent_node.Pods(pod),
            {"d": began},
            policy=watch.Policy(**policy),  # type: ignore[arg-type]
            callbacks=watch.Callbacks(
                ask=lambda uuids: tuple(map(self._card, uuids)),
                tell=lambda pod, text, ended: self.messages.append(
                    (pod.metadata.name, text, ended)
                ),
                count=lambda finding, then: self.counted.append((finding.kind, then)),
                notice=self.others.append,
            ),
            clock=lambda: self.now_s,
        )

    def _card(self, uuid: str) -> nvml.Occupancy:
        held = self.held if uuid == agent_node.uuid(0) else {}
        holders = tuple(nvml.Process(pid, used) for pid, used in held.items())
        return nvml.Occupancy(uuid, sum(held.values()), holders)

    async def look(self, times: int = 3) -> None:
        """Let so many looks pass, as fast as they come."""
        for _ in range(times):
            await self.watch.look()
            self.now_s += 0.5


async def test_the_process_is_ended_and_the_pod_is_told(
    root: roots.Root, process: subprocess.Popen[bytes]
) -> None:
    """If nothing was chosen: within three looks, with the process, and how much it held."""
    node = Node(root)
    node.held = {process.pid: 13 * GIB}
    await node.look(2)
    assert (process.poll(), node.messages) == (None, [])
    await node.look(1)
    assert process.wait() == -signal.SIGKILL
    ((name, text, ended),) = node.messages
    assert (name, ended) == ("one", True)
    assert text == (
        f"card 0: process {process.pid} is outside its fence: it holds 13312 MiB, and 11264 MiB "
        "of the tenant are above its quota; it was ended"
    )
    assert node.counted == [(escapes.Kind.EXCESS, Then.END)]


async def test_it_is_shown_while_it_is_there(
    root: roots.Root, process: subprocess.Popen[bytes]
) -> None:
    """By tenant and card; and what nobody accounts for is a number."""
    node = Node(root, then=Then.TELL)
    node.held = {process.pid: 13 * GIB}
    await node.look()
    assert set(node.watch.outside) == {(TENANT, agent_node.uuid(0))}
    assert dict(node.watch.judgement.unaccounted_bytes)[agent_node.uuid(0)] == 13 * GIB
    node.held = {}
    await node.look(1)
    assert node.watch.outside == {}


async def test_a_process_of_somebody_else_is_left_alone(root: roots.Root, cgroup: Path) -> None:
    """It holds as much, and is in no container of Partage."""
    node = Node(root)
    with orphans.sleeping() as stranger:
        node.held = {stranger: 13 * GIB}
        await node.look(6)
        assert processes.facts(stranger) is not None
        assert node.others[-1].foreign.keys() == {stranger}
    assert node.messages == []


async def test_who_escapes_is_not_foreign(
    root: roots.Root, process: subprocess.Popen[bytes]
) -> None:
    """What a tenant holds beside its fence is the tenant's."""
    node = Node(root, then=Then.TELL)
    node.held = {process.pid: 13 * GIB}
    await node.look(3)
    assert node.watch.outside
    assert not any(look.foreign for look in node.others)


async def test_who_leaves_the_container_before_the_end_is_left_alone(
    root: roots.Root, process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose it is, is asked again when it is to be ended."""
    node = Node(root)
    node.held = {process.pid: 13 * GIB}
    await node.look(2)
    end = processes.end

    def later(pid: int, started_ticks: int, whose: Callable[[processes.Facts], bool]) -> str:
        (HIERARCHY / "cgroup.procs").write_text(str(pid))
        return end(pid, started_ticks, whose)

    monkeypatch.setattr(processes, "end", later)
    await node.look(1)
    assert process.poll() is None
    assert "it was not ended" in node.messages[0][1]


@pytest.mark.parametrize(
    ("then", "label", "classes", "expected"),
    [
        (Then.END, "", {}, Then.END),
        (Then.TELL, "", {}, Then.TELL),
        (Then.END, "tell", {}, Then.TELL),
        (Then.TELL, "end", {"batch": Then.PAUSE}, Then.PAUSE),
        (Then.TELL, "nonsense", {"other": Then.END}, Then.TELL),
    ],
)
async def test_what_is_done_is_chosen_for_the_node_and_for_classes(  # noqa: PLR0917
    root: roots.Root,
    process: subprocess.Popen[bytes],
    then: Then,
    label: str,
    classes: dict[str, Then],
    expected: Then,
) -> None:
    """A class says more than a node's label, and that more than the flag of all agents."""
    node = Node(root, priority_class="batch", then=then, classes=classes)
    node.facts.set_labels({watch.LABEL: label} if label else {})
    node.held = {process.pid: 13 * GIB}
    await node.look(5)
    assert [done for _, done in node.counted] == [expected]
    assert (process.poll() is None) == (expected is not Then.END)
    assert usage.snapshot(root, TENANT).cards[0].paused == (expected is Then.PAUSE)


async def test_the_same_process_is_told_once(
    root: roots.Root, process: subprocess.Popen[bytes]
) -> None:
    """However long it stays, and though it is found for two reasons."""
    node = Node(root, then=Then.TELL)
    node.held = {process.pid: 13 * GIB}
    await node.look(10)
    assert len(node.messages) == 1


async def test_who_takes_nothing_from_others_is_told_and_lives(
    root: roots.Root, process: subprocess.Popen[bytes]
) -> None:
    """A program that no fence gets into, within its memory; it is ended when it takes more."""
    node = Node(root)
    node.held = {process.pid: GIB}
    await node.look(4)
    assert process.poll() is None
    ((_, text, ended),) = node.messages
    assert (ended, text.endswith("nothing was done about it")) == (False, True)
    node.held = {process.pid: 13 * GIB}
    await node.look()
    assert process.wait() == -signal.SIGKILL


async def test_what_is_wanted_later_is_done_later(
    root: roots.Root, process: subprocess.Popen[bytes]
) -> None:
    """An administrator who was told changes the label, and need not wait for another one."""
    node = Node(root, then=Then.TELL)
    node.held = {process.pid: 13 * GIB}
    await node.look()
    node.facts.set_labels({watch.LABEL: "end"})
    await node.look(1)
    assert process.wait() == -signal.SIGKILL
    assert [done for _, done in node.counted] == [Then.TELL, Then.END]


async def test_an_agent_that_cannot_see_processes_says_so(root: roots.Root) -> None:
    """Fences know of processes that the driver does not name: hostPID is missing."""
    node = Node(root)
    region = root.tenants / TENANT / "region"
    descriptor = os.open(region, os.O_RDWR)
    try:
        assert locks.take(descriptor, 0)
        await node.look(25)
        assert "hostPID" in node.watch.problem
    finally:
        os.close(descriptor)
    await node.look(1)
    assert node.watch.problem == ""
