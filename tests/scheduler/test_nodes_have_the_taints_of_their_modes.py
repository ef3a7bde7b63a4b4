"""A node in a mode for pods with cards has the taint of that mode; no other taint is lost."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import hypothesis
import msgspec
import pytest
from hypothesis import strategies as st

from partage.dialects import nodes
from partage.kube import api as kube
from partage.kube import errors as kube_errors
from partage.scheduler import node_taints
from tests.kube import api_clients, scripted_server

MODE = "sched.tensorstack.dev/node-alloc-mode"
OURS = nodes.Taint("sched.tensorstack.dev/xgn-mode", "true", "NoSchedule")
NOTE = node_taints.ANNOTATION
DISK = {"key": "disk", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}
XGN = {"key": OURS.key, "value": "true", "effect": "NoSchedule"}

TAINTS = st.builds(
    nodes.Taint,
    st.sampled_from(["a", "b", OURS.key]),
    st.sampled_from(["", "true", "false"]),
    st.sampled_from(["NoSchedule", "NoExecute"]),
)


def _unique(taints: list[nodes.Taint]) -> bool:
    """As the API server wants them."""
    return len({(taint.key, taint.effect) for taint in taints}) == len(taints)


LISTS = st.lists(TAINTS, max_size=4).filter(_unique)


class TestTheChange:
    """The pure part."""

    @hypothesis.given(intended=LISTS, present=LISTS, noted=LISTS)
    def test_it_ends_in_a_node_that_needs_no_other(
        self, intended: list[nodes.Taint], present: list[nodes.Taint], noted: list[nodes.Taint]
    ) -> None:
        """What is removed was noted, what stays has its place, and twice is the same as once."""
        change = node_taints.change(intended, present, ",".join(map(str, noted)))
        if change is None:
            return
        after = [taint for taint in present if taint not in change.removed] + list(change.added)
        assert _unique(after)
        assert set(change.removed) <= set(noted)
        assert {(t.key, t.effect) for t in intended} <= {(t.key, t.effect) for t in after}
        assert node_taints.change(intended, after, change.noted) is None
        last = node_taints.change((), after, change.noted)
        assert set(intended) & set(after) == set(last.removed if last else ())

    def test_a_taint_set_by_hand_stays_where_no_label_asks_for_it(self) -> None:
        """Nobody noted it."""
        assert node_taints.change((), (OURS,), "") is None

    def test_another_value_of_the_same_key_is_left_alone(self) -> None:
        """Two with one effect are not allowed, and the first is somebody's decision."""
        theirs = nodes.Taint(OURS.key, "false", OURS.effect)
        assert node_taints.change((OURS,), (theirs,), "") is None

    def test_one_that_is_there_is_noted(self) -> None:
        """T9k's own scheduler has put it, and it goes with the label."""
        assert node_taints.change((OURS,), (OURS,), "") == node_taints.Change((), (), str(OURS))
        assert node_taints.change((), (OURS,), str(OURS)) == node_taints.Change((), (OURS,), "")


class Server(kube.Api):
    """An API server with one node, which changes when it is told to."""

    def __init__(self, *taints: dict[str, Any], **labels: str) -> None:
        """Nothing is connected."""
        self.node: dict[str, Any] | None = {
            "metadata": {
                "name": "n1",
                "resourceVersion": "1",
                "labels": {MODE: labels["mode"]} if "mode" in labels else {},
                "annotations": {},
            },
            "spec": {"taints": list(taints)},
        }
        self.answers: list[Exception] = []  # to patches
        self.between: Callable[[], None] = lambda: None  # after each read
        self.patches = 0
        self.reads = 0

    async def get(self, path: str, form: Any, query: Any = None) -> Any:
        """The node as it is now."""
        assert path == "/api/v1/nodes/n1"
        self.reads += 1
        if self.node is None:
            raise kube_errors.NotFound(404, "NotFound", "no node")
        read = msgspec.convert(copy.deepcopy(self.node), form)
        self.between()
        return read

    async def patch(self, path: str, body: object, *, kind: Any = None) -> bytes:
        """Merge it, if it is for this version."""
        if self.answers:
            raise self.answers.pop(0)
        assert self.node is not None
        change = json.loads(msgspec.json.encode(body))
        meta = self.node["metadata"]
        if change["metadata"]["resourceVersion"] != meta["resourceVersion"]:
            raise kube_errors.Conflict(409, "Conflict", "the object has been modified")
        notes = {**meta["annotations"], **change["metadata"]["annotations"]}
        meta["annotations"] = {name: text for name, text in notes.items() if text is not None}
        self.node["spec"] |= change["spec"]
        self.touch()
        self.patches += 1
        return b"{}"

    def touch(self) -> None:
        """A newer version."""
        assert self.node is not None
        meta = self.node["metadata"]
        meta["resourceVersion"] = str(int(meta["resourceVersion"]) + 1)

    def label(self, mode: str) -> None:
        """Somebody sets the label, or takes it away."""
        assert self.node is not None
        self.node["metadata"]["labels"] = {MODE: mode} if mode else {}
        self.touch()

    @property
    def taints(self) -> list[dict[str, Any]]:
        """Those of the node."""
        assert self.node is not None
        taints: list[dict[str, Any]] = self.node["spec"]["taints"]
        return taints

    @property
    def note(self) -> str:
        """What the annotation says."""
        assert self.node is not None
        return str(self.node["metadata"]["annotations"].get(NOTE, ""))

    def seen(self) -> nodes.Node:
        """As the watch shows it."""
        return msgspec.convert(self.node, nodes.Node)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test needs the pauses."""
    monkeypatch.setattr(node_taints, "_PAUSE_S", 0.001)


@contextlib.asynccontextmanager
async def keeping(
    server: Server, *, leading: Callable[[], bool] = lambda: True, put: bool = True
) -> AsyncIterator[node_taints.NodeTaints]:
    """Somebody who keeps the taints."""
    keeper = node_taints.NodeTaints(server, leading=leading, put=put)
    async with api_clients.running(keeper.run()):
        yield keeper


async def test_a_label_brings_the_taint_and_another_takes_it_away() -> None:
    """Others stay, with all that they have."""
    server = Server(DISK, mode="xgn")
    async with keeping(server) as keeper:
        keeper.look(server.seen())
        await scripted_server.until(lambda: server.taints == [DISK, XGN])
        assert server.note == str(OURS)
        server.label("sgn")
        keeper.look(server.seen())
        await scripted_server.until(lambda: server.taints == [DISK])
        assert server.note == ""
        server.label("xgn")
        keeper.look(server.seen())
        await scripted_server.until(lambda: server.taints == [DISK, XGN])
        server.label("")
        keeper.look(server.seen())
        await scripted_server.until(lambda: server.taints == [DISK])


async def test_a_node_that_is_as_it_should_be_is_not_even_read() -> None:
    """Nodes report every few seconds."""
    for server in (Server(DISK, XGN), Server(mode="sgn")):
        async with keeping(server) as keeper:
            for _ in range(10):
                keeper.look(server.seen())
            server.label("xgn")
            keeper.look(server.seen())
            await scripted_server.until(lambda: server.patches == 1)  # noqa: B023 (called at once)
        assert server.reads == 1


async def test_what_the_watch_said_is_read_anew() -> None:
    """The label may be gone by the time that the taint would be put."""
    server = Server(mode="xgn")
    before = server.seen()
    server.label("sgn")
    async with keeping(server) as keeper:
        keeper.look(before)
        await scripted_server.until(lambda: server.reads == 1)
        server.label("xgn")
        keeper.look(server.seen())
        await scripted_server.until(lambda: server.taints == [XGN])
    assert (server.reads, server.patches) == (2, 1)


async def test_a_node_that_changes_meanwhile_is_read_again() -> None:
    """What somebody else wrote between our reading and our writing is kept."""
    server = Server(mode="xgn")

    def cordon() -> None:
        server.between = lambda: None
        server.taints.append(DISK)
        server.touch()

    server.between = cordon
    async with keeping(server) as keeper:
        keeper.look(server.seen())
        await scripted_server.until(lambda: server.taints == [DISK, XGN])
    assert (server.reads, server.patches) == (2, 1)


async def test_who_does_not_lead_writes_nothing() -> None:
    """Replicas stand by; one that begins to lead reads all nodes again."""
    server, leads = Server(mode="xgn"), asyncio.Event()
    async with keeping(server, leading=leads.is_set) as keeper:
        keeper.look(server.seen())
        await scripted_server.until(lambda: not keeper._names)
        leads.set()
        keeper.look(server.seen())
        await scripted_server.until(lambda: server.patches == 1)
    assert server.reads == 1


async def test_where_no_taints_are_to_be_put_ours_are_removed() -> None:
    """The administrator has changed his mind; what he set by hand stays."""
    server = Server(DISK, mode="xgn")
    async with keeping(server) as keeper:
        keeper.look(server.seen())
        await scripted_server.until(lambda: server.taints == [DISK, XGN])
    async with keeping(server, put=False) as keeper:
        keeper.look(server.seen())
        await scripted_server.until(lambda: server.taints == [DISK])


async def test_a_failure_is_tried_again() -> None:
    """The API server may be away."""
    server = Server(mode="xgn")
    server.answers = [kube_errors.Unreachable("away", sent=True)] * 3
    async with keeping(server) as keeper:
        keeper.look(server.seen())
        await scripted_server.until(lambda: server.taints == [XGN])


async def test_a_node_that_is_gone_is_forgotten() -> None:
    """There is nothing to try again; one of the same name may come."""
    server = Server(mode="xgn")
    node, server.node = server.node, None
    seen = msgspec.convert(node, nodes.Node)
    async with keeping(server) as keeper:
        keeper.look(seen)
        await scripted_server.until(lambda: server.reads == 1)
        server.node = node
        keeper.look(seen)
        await scripted_server.until(lambda: server.patches == 1)
    assert server.reads == 2


async def test_a_missing_right_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """All else works without it."""
    server = Server(mode="xgn")
    server.answers = [kube_errors.Forbidden(403, "Forbidden", "no")] * 2
    async with keeping(server) as keeper:
        for _ in range(2):
            keeper.look(server.seen())
            await scripted_server.until(lambda: not keeper._names)
        await scripted_server.until(lambda: not server.answers)
    complaints = [r for r in caplog.records if "allow 'patch' on nodes" in r.getMessage()]
    assert len(complaints) == 1
