"""Fuzzing: bodies that nobody would send, to a real process with a real cluster behind it."""

from __future__ import annotations

import copy
import http.client
import json
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from cluster import objects
from cluster.control_plane.control_plane import ControlPlane
from cluster.partage_processes import extender_process

VERBS = (
    "/scheduler/filter",
    "/scheduler/prioritize",
    "/scheduler/priorities",
    "/scheduler/preempt",
    "/scheduler/bind",
    "/gpushare-scheduler/filter",
    "/gpushare-scheduler/bind",
    "/fit",
)

_LIMITS = {
    "partage.dev/cards": "1",
    "aliyun.com/gpu-mem": "3",
    "nvidia.com/gpu": "1",
    "nvidia.com/gpumem": "1000",
    "tke.cloud.tencent.com/qgpu-core": "20",
    "partage.dev/memory-mib": "512",
    "cpu": "500m",
}

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4)
    ),
    max_leaves=12,
)


@pytest.fixture
def extender(
    clean_cluster: ControlPlane, extender: extender_process.Extender
) -> extender_process.Extender:
    """An extender that knows two nodes."""
    clean_cluster.client.create_all(objects.nodes(2, cards=2))
    extender.start()
    return extender


@st.composite
def _bodies(draw: st.DrawFn) -> bytes:
    """A body that is nearly right: a good one with a few places changed, cut or doubled."""
    body = _good(draw)
    for _ in range(draw(st.integers(0, 4))):
        place = draw(st.sampled_from(list(_places(body))))
        _change(draw, body, place)
    text = json.dumps(body).encode()
    cut = draw(st.sampled_from((None, None, None, len(text) // 2, len(text) - 1)))
    return text[:cut] + draw(st.sampled_from((b"", b"", b"", b"}", b"\xff", b"{}")))


def _good(draw: st.DrawFn) -> dict[str, Any]:
    limits = draw(
        st.dictionaries(
            st.sampled_from(list(_LIMITS)),
            st.sampled_from([*_LIMITS.values(), "-1", "1e99", "9" * 40, "4Gi", ""]),
            max_size=3,
        )
    )
    pod = objects.pod("p", limits)
    pod["metadata"]["uid"] = draw(st.sampled_from(("u1", "u2", "")))
    victims = {"node-1": {"Pods": [{"UID": "u1"}], "NumPDBViolations": 0}}
    return {
        "Pod": pod,
        "Nodes": draw(st.sampled_from((None, {"items": [objects.node("node-1")]}))),
        "NodeNames": draw(st.sampled_from((None, [], ["node-1", "node-2"], ["gone"]))),
        "NodeNameToMetaVictims": victims,
        "PodName": "p",
        "PodNamespace": "default",
        "PodUID": "u1",
        "Node": "node-1",
    }


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, inner in items:
        yield (*path, key)
        yield from _places(inner, (*path, key))


def _change(draw: st.DrawFn, body: Any, place: tuple[Any, ...]) -> None:
    for key in place[:-1]:
        body = body[key]
    last = place[-1]
    how = draw(st.sampled_from(("replace", "remove", "rename", "double")))
    if how == "remove":
        del body[last]
    elif how == "rename" and isinstance(body, dict):
        body[str(last).swapcase()] = body.pop(last)
    elif how == "double" and isinstance(body, list):
        body.append(copy.deepcopy(body[last]))
    else:
        body[last] = draw(_JSON)


def test_the_process_never_dies_and_never_fails_inside(extender: extender_process.Extender) -> None:
    """Whatever comes, an answer of the verb's own kind goes back, and nothing is left held."""
    connection = http.client.HTTPConnection("127.0.0.1", extender.port, timeout=30)
    pid = extender.pid

    @hypothesis.settings(
        max_examples=300,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(verb=st.sampled_from(VERBS), body=_bodies() | st.binary(max_size=200))
    def ask(verb: str, body: bytes) -> None:
        connection.request("POST", verb, body)
        answer = connection.getresponse()
        read = answer.read()
        assert answer.status in ((200, 400) if verb == "/fit" else (200,)), read
        json.loads(read)
        assert b"Traceback" not in read
        assert b"failed inside" not in read

    @hypothesis.settings(max_examples=100, deadline=None)
    @hypothesis.given(st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), min_size=1))
    def inspect(name: str) -> None:
        path = "/gpushare-scheduler/inspect/" + "".join(f"%{ord(c):02x}" for c in name)
        connection.request("GET", path)
        answer = connection.getresponse()
        assert answer.status in (200, 404)
        assert b"Traceback" not in answer.read()

    ask()
    inspect()
    connection.close()
    assert extender.pid == pid
    assert "Traceback" not in extender.log(lines=10_000)


def test_a_body_without_end_is_cut_off(extender: extender_process.Extender) -> None:
    """Memory is bounded, and the answer says why."""
    connection = http.client.HTTPConnection("127.0.0.1", extender.port, timeout=60)
    connection.request("POST", "/scheduler/filter", b" " * (40 << 20))
    answer = connection.getresponse()
    assert "is larger than" in json.loads(answer.read())["Error"]
    connection.close()
