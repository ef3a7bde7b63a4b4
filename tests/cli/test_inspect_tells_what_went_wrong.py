"""Both commands say in one line what went wrong with what, and never show a traceback."""

from __future__ import annotations

import asyncio
import pathlib
import socket
import subprocess
import sys

import pytest

from partage.cli.cluster import cluster_snapshot
from partage.kube.auth import credentials
from tests.cli import fake_cluster
from tests.cli.fake_cluster import Result

OURS, THEIRS = ("partage", "inspect"), ("kubectl-inspect-gpushare",)


def messages(ours: Result, theirs: Result) -> tuple[str, str]:
    """What each command says; the second one the original's way, on stdout, without a newline."""
    assert (ours.code, ours.out) == (1, "")
    assert ours.err.startswith("partage: ")
    assert ours.err.count("\n") == 1
    assert (theirs.code, theirs.err) == (1, "")
    assert theirs.out.startswith("Failed due to ")
    assert "\n" not in theirs.out
    return ours.err.strip(), theirs.out


async def alone(*arguments: str, **environ: str) -> tuple[str, str]:
    """What both say without any cluster."""
    runs = (fake_cluster.run(*program, *arguments, environ=environ) for program in (OURS, THEIRS))
    return messages(*await asyncio.gather(*runs))


async def asking(
    cluster: fake_cluster.Cluster, folder: pathlib.Path, *arguments: str
) -> tuple[str, str]:
    """What both say of a cluster."""
    runs = (cluster.run(*program, *arguments, folder=folder) for program in (OURS, THEIRS))
    return messages(*await asyncio.gather(*runs))


async def test_no_kubeconfig(tmp_path: pathlib.Path) -> None:
    """Where it was looked for, and what to do."""
    for said in await alone(HOME=str(tmp_path)):
        assert f"there is no {tmp_path}/.kube/config" in said
        assert said.endswith("name a kubeconfig file or set KUBECONFIG")


def test_the_persons_own_kubeconfig_counts_before_a_pods_account(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for kubectl: inside a pod, too, a file in the home folder is used."""
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").write_text("clusters: 7", encoding="utf-8")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setattr(credentials, "_in_cluster", lambda *_: True)

    with pytest.raises(cluster_snapshot.CannotRead, match=f"{tmp_path}/.kube/config"):
        cluster_snapshot.read(_nothing, kubeconfig=None, context=None, node="")


async def _nothing(_: cluster_snapshot.Cluster) -> None:
    """Work that is never begun."""


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--kubeconfig", "/nowhere/config"), "/nowhere/config"),
        (("--context", "nope"), "nope"),
    ],
)
async def test_a_kubeconfig_or_context_that_is_not_there(
    flags: tuple[str, str], says: str, tmp_path: pathlib.Path
) -> None:
    """It is named."""
    path = fake_cluster.kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:9")

    for said in await alone(*flags, KUBECONFIG=str(path)):
        assert says in said


async def test_a_server_that_cannot_be_reached(tmp_path: pathlib.Path) -> None:
    """Its address is told, and that it should be looked at."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    path = fake_cluster.kubeconfig(tmp_path / "kubeconfig", f"http://127.0.0.1:{port}")

    for said in await alone("--kubeconfig", str(path)):
        assert "no connection" in said
        assert str(port) in said
        assert "check the server's address and that it runs" in said


@pytest.mark.parametrize("kind", ["nodes", "pods"])
async def test_a_right_that_is_missing(
    kind: str, cluster: fake_cluster.Cluster, tmp_path: pathlib.Path
) -> None:
    """In the server's words; the original prints nothing but them."""
    said = f'{kind} is forbidden: User "jane" cannot list resource "{kind}" at the cluster scope'
    cluster.refused[f"/api/v1/{kind}"] = (403, "Forbidden", said)

    ours, theirs = await asking(cluster, tmp_path)

    assert said in ours
    assert "docs/inspect.md shows the ClusterRole" in ours
    assert theirs == f"Failed due to {said}"


async def test_a_login_that_is_not_taken(
    cluster: fake_cluster.Cluster, tmp_path: pathlib.Path
) -> None:
    """Another context may help, and --context chooses it."""
    ours, theirs = await asking(cluster, tmp_path, "--context", "stranger")

    assert "401 Unauthorized" in ours
    assert "log in again, or choose another context" in ours
    assert theirs == "Failed due to Unauthorized"


@pytest.mark.parametrize("name", ["nope", "../pods"])
async def test_a_node_that_is_not_there(
    name: str, cluster: fake_cluster.Cluster, tmp_path: pathlib.Path
) -> None:
    """It is named, in the original's words too; a name that is none is not put into a path."""
    ours, theirs = await asking(cluster, tmp_path, name)

    assert ours == f"partage: there is no node '{name}'; 'kubectl get nodes' lists them"
    assert theirs == f'Failed due to nodes "{name}" not found'
    assert {path for path, _ in cluster.requests} <= {f"/api/v1/nodes/{name}"}


async def test_whatever_answers_is_no_api_server(
    cluster: fake_cluster.Cluster, tmp_path: pathlib.Path
) -> None:
    """A page that is not found is not taken for a node that is not found."""
    cluster.refused["/api/v1/nodes/n"] = (404, "", "404 page not found")

    ours, theirs = await asking(cluster, tmp_path, "n")

    assert "GET /api/v1/nodes/n: 404: 404 page not found" in ours
    assert theirs == "Failed due to 404 page not found"


@pytest.mark.parametrize(
    ("program", "arguments", "says"),
    [
        (OURS, ("--nope",), "partage: No such option '--nope'."),
        (OURS, ("-o", "xml"), "'xml' is not one of"),
        (OURS, ("a", "b"), "unexpected extra argument"),
        (THEIRS, ("--nope",), "kubectl inspect gpushare: No such option '--nope'."),
        (THEIRS, ("a", "b"), "unexpected extra argument"),
    ],
)
async def test_a_wrong_flag(
    program: tuple[str, ...], arguments: tuple[str, ...], says: str
) -> None:
    """One line on stderr that names the help; exit code 2."""
    result = await fake_cluster.run(*program, *arguments, environ={})

    assert (result.code, result.out) == (2, "")
    assert says in result.err
    assert "--help'." in result.err
    assert result.err.count("\n") == 1


def test_nothing_slow_is_imported_before_it_is_needed() -> None:
    """Help and completion answer at once."""
    code = (
        "import sys, partage.cli.command_group, partage.cli.commands.kubectl_inspect_gpushare;"
        "sys.exit(bool({'aiohttp', 'rich', 'prometheus_client'} & set(sys.modules)))"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


async def test_help_has_examples() -> None:
    """And the second command knows itself by the name that people type."""
    ours = await fake_cluster.run(*OURS, "--help", environ={})
    theirs = await fake_cluster.run(*THEIRS, "-h", environ={})

    assert "partage inspect dev-server-153 -o wide" in ours.out
    assert theirs.out.startswith("Usage: kubectl inspect gpushare [OPTIONS] [NODE]")
