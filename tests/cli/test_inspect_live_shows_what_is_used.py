"""``partage inspect --live``: what a node's agent measures, beside what the cluster granted."""

from __future__ import annotations

import json
import pathlib
from collections.abc import AsyncIterator

import msgspec
import pytest_asyncio
from aiohttp import test_utils

from partage.agent import reports, web
from partage.agent.metrics import current_names
from partage.core import cards, grants
from partage.dialects import grant_record, nodes
from partage.dialects.families import native
from partage.fence import usage
from tests.agent import node_reports
from tests.cli import fake_cluster
from tests.cli.fake_cluster import node, pod

MIB = 1 << 20
CARDS = tuple(cards.Card(uuid=f"GPU-{i}", index=i, memory_mib=16384) for i in range(2))
PROGRAM = ("partage", "inspect")


def grant(name: str, *containers: grants.ContainerGrant) -> grants.Grant:
    """What a pod has."""
    whose = grants.Pod(f"uid-lab-{name}", "lab", name)
    return grants.Grant(pod=whose, node="n1", containers=containers, dialect="native")


def container(name: str, *indexes: int, fence: str = "hook") -> grants.ContainerGrant:
    """A GiB of each of these cards."""
    shares = tuple(grants.Share(uuid=f"GPU-{i}", index=i, memory_mib=1024) for i in indexes)
    return grants.ContainerGrant(name=name, shares=shares, fence=fence)


PAIR = grant("pair", container("c0", 0, 1), container("c1", 0))
TOLD = grant("told", container("c0", 1, fence="advisory"))


def report() -> reports.Report:
    """One pod that is counted, with two containers on the first card, and one that is not."""
    return reports.report(
        "n1",
        CARDS,
        unhealthy={},
        measured={"GPU-0": reports.Measured(used_mib=900)},
        containers=[
            *(
                reports.Container(
                    grant=PAIR, container=container, fence="hook", tenant=container.name
                )
                for container in PAIR.containers
            ),
            reports.Container(grant=TOLD, container=TOLD.containers[0], fence="advisory"),
        ],
        used={
            "c0": usage.Usage(
                "c0",
                (
                    node_reports.card_usage("GPU-0", used_bytes=300 * MIB),
                    node_reports.card_usage("GPU-1", used_bytes=1),
                ),
                (),
            ),
            "c1": usage.Usage("c1", (node_reports.card_usage("GPU-0", used_bytes=400 * MIB),), ()),
        },
        taken_ns=1,
    )


@pytest_asyncio.fixture
async def agent() -> AsyncIterator[str]:
    """The address of the agent of node n1."""
    parts = web.Parts(report, lambda: "", current_names.Metrics())
    async with test_utils.TestServer(web.application(parts)) as server:
        yield str(server.make_url("/"))


@pytest_asyncio.fixture
async def populated(cluster: fake_cluster.Cluster) -> fake_cluster.Cluster:
    """Two nodes; the pods are on the first."""
    annotations = {nodes.CARDS: nodes.encode(CARDS)}
    others = tuple(cards.Card(uuid=f"GPU-x{i}", index=i, memory_mib=8192) for i in range(1))
    cluster.objects[fake_cluster.NODES] = [
        node("n1", annotations=annotations),
        node("n2", annotations={nodes.CARDS: nodes.encode(others)}),
    ]
    cluster.objects[fake_cluster.PODS] = [
        pod(
            grant.pod.name,
            "n1",
            *({native.MEMORY: 1024, native.CARDS: len(c.shares)} for c in grant.containers),
            annotations={grant_record.GRANT: grant_record.encode(grant)},
            namespace="lab",
        )
        for grant in (PAIR, TOLD)
    ]
    return cluster


async def test_what_is_used_stands_beside_what_was_granted(
    populated: fake_cluster.Cluster, agent: str, tmp_path: pathlib.Path
) -> None:
    """Of this node's cards and pods; what the agent does not know is N/A."""
    result = await populated.run(*PROGRAM, "--live", "--agent", agent, folder=tmp_path)

    assert (result.code, result.err) == (0, "")
    shown, tenants = (block.splitlines() for block in result.out.split("\n\n"))
    assert [line.split()[-1] for line in shown] == ["MEASURED(MiB)", "900", "N/A", "N/A"]
    assert tenants[0].split()[-1] == "MEASURED(MiB)"
    assert [(line.split()[1], line.split()[3], line.split()[-1]) for line in tenants[1:]] == [
        ("0", "pair", "700"),
        ("1", "pair", "1"),
        ("1", "told", "N/A"),
    ]


async def test_programs_have_it_where_it_is_known(
    populated: fake_cluster.Cluster, agent: str, tmp_path: pathlib.Path
) -> None:
    """And the same object as ever without --live."""
    live = await populated.run(*PROGRAM, "--live", "--agent", agent, "-o", "json", folder=tmp_path)
    plain = await populated.run(*PROGRAM, "-o", "json", folder=tmp_path)

    first, second = json.loads(live.out)["nodes"][0]["cards"]
    assert (first["measured_mib"], first["tenants"][0]["measured_mib"]) == (900, 700)
    assert "measured_mib" not in second
    assert "measured_mib" not in plain.out
    assert [tenant["fence"] for tenant in second["tenants"]] == ["hook", "advisory"]


async def test_an_agent_of_another_node_is_said_to_be_one(
    populated: fake_cluster.Cluster, agent: str, tmp_path: pathlib.Path
) -> None:
    """The table is there all the same."""
    result = await populated.run(*PROGRAM, "n2", "--live", "--agent", agent, folder=tmp_path)

    assert result.code == 0
    assert result.err == "The agent belongs to node n1, which is not shown.\n"
    assert "n2" in result.out


async def test_without_an_agent_it_says_so(
    populated: fake_cluster.Cluster, tmp_path: pathlib.Path
) -> None:
    """A user who asked for it is not given something else."""
    result = await populated.run(
        *PROGRAM, "--live", "--agent", "http://127.0.0.1:1", folder=tmp_path
    )

    assert (result.code, result.out) == (1, "")
    assert (
        "cannot read the report of an agent at http://127.0.0.1:1: Connection refused" in result.err
    )


async def test_a_pod_outside_its_fence_is_shown_so(
    populated: fake_cluster.Cluster, tmp_path: pathlib.Path
) -> None:
    """By what its agent found, and not by what was written on it when it started."""

    def outside_report() -> reports.Report:
        first, *rest = report().containers
        outside = msgspec.structs.replace(first, fence="outside")
        return msgspec.structs.replace(report(), containers=(outside, *rest))

    parts = web.Parts(outside_report, lambda: "", current_names.Metrics())
    async with test_utils.TestServer(web.application(parts)) as server:
        url = str(server.make_url("/"))
        result = await populated.run(*PROGRAM, "--live", "--agent", url, folder=tmp_path)
    rows = [line.split() for line in result.out.split("\n\n")[1].splitlines()[1:]]
    assert [(row[1], row[3], "outside" in row) for row in rows] == [
        ("0", "pair", True),
        ("1", "pair", False),
        ("1", "told", False),
    ]
