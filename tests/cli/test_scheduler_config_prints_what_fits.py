"""`partage scheduler-config` as people use it: with a cluster, without one, and with mistakes."""

from __future__ import annotations

import json
import pathlib

import pytest
import yaml
from click.testing import CliRunner, Result

from partage.cli import command_group
from partage.core import errors
from tests.cli import fake_cluster

SERVICES = "/api/v1/services"
DEPLOY = pathlib.Path(__file__).parents[2] / "deploy"


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(command_group.commands, ["scheduler-config", *arguments])


def test_offline_it_prints_what_is_shipped() -> None:
    """But for the lines that say where that file comes from."""
    shipped = (DEPLOY / "scheduler-config.yaml").read_text().splitlines(keepends=True)

    assert _run("--offline").stdout == "".join(shipped[3:])


async def test_the_nodes_of_a_cluster_decide(
    cluster: fake_cluster.Cluster, tmp_path: pathlib.Path
) -> None:
    """In JSON the reasons are beside the configuration."""
    cluster.objects[fake_cluster.NODES] = [
        {"metadata": {"name": f"gpu-{i}"}, "status": {"capacity": {"nvidia.com/gpu": "8"}}}
        for i in range(3)
    ]

    done = await cluster.run(
        *("partage", "scheduler-config", "-o", "json", "--service", "gpu/extender"),
        folder=tmp_path,
    )

    assert done.code == 0, done.err
    (extender,) = json.loads(done.out)["extenders"]
    assert extender["urlPrefix"] == "https://extender.gpu.svc/scheduler"
    assert "nvidia.com/gpu" not in [row["name"] for row in extender["managedResources"]]
    assert "nvidia.com/gpu on gpu-0, gpu-1, gpu-2, where no agent" in done.err


@pytest.mark.parametrize(
    ("places", "url"),
    [
        ([], "https://partage-extender.kube-system.svc/scheduler"),
        (["gpu/sharing-extender"], "https://sharing-extender.gpu.svc/scheduler"),
    ],
)
async def test_the_extender_is_where_its_service_is(
    cluster: fake_cluster.Cluster, tmp_path: pathlib.Path, places: list[str], url: str
) -> None:
    """The chart puts it into any namespace; while there is none, the usual name is taken."""
    cluster.objects[SERVICES] = [_service(place) for place in places]

    done = await cluster.run("partage", "scheduler-config", folder=tmp_path)

    (extender,) = yaml.safe_load(done.out)["extenders"]
    assert extender["urlPrefix"] == url


async def test_of_two_extenders_one_has_to_be_named(
    cluster: fake_cluster.Cluster, tmp_path: pathlib.Path
) -> None:
    """And who may not list Services gets the usual name."""
    cluster.objects[SERVICES] = [_service("a/extender"), _service("b/extender")]
    done = await cluster.run("partage", "scheduler-config", folder=tmp_path)
    assert done.code == 2
    assert "more than one extender: a/extender, b/extender; name one with --service" in done.err

    cluster.refused[SERVICES] = (403, "Forbidden", "services is forbidden")
    done = await cluster.run("partage", "scheduler-config", folder=tmp_path)
    assert "urlPrefix: https://partage-extender.kube-system.svc/scheduler" in done.out


def _service(place: str) -> fake_cluster.Object:
    namespace, _, name = place.partition("/")
    return {"metadata": {"namespace": namespace, "name": name}}


def test_an_address_without_tls_needs_no_files() -> None:
    """As for an extender on the same machine."""
    (extender,) = yaml.safe_load(_run("--offline", "--url", "http://127.0.0.1:39999").stdout)[
        "extenders"
    ]

    assert extender["urlPrefix"] == "http://127.0.0.1:39999/scheduler"
    assert not {"tlsConfig", "enableHTTPS"} & extender.keys()


def test_a_second_scheduler_has_a_name_and_a_lease_of_its_own() -> None:
    """Beside the first one with its lease, one of the two would do nothing."""
    printed = yaml.safe_load(_run("--offline", "--scheduler-name", "mine").stdout)

    assert printed["leaderElection"]["resourceName"] == "mine"
    assert "clientConnection" not in printed
    names = [profile["schedulerName"] for profile in printed["profiles"]]
    assert names == ["mine", "t9k-scheduler"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--url", "extender:80"), "is not the address of an extender; write https://HOST:PORT"),
        (("--url", "https://x/filter"), "is not the address of an extender"),
        (("--url", "https://[::1"), "is not the address of an extender"),
        (("--service", "a/b/c"), "'a/b' is not a name that Kubernetes allows"),
        (("--scheduler-name", "My Scheduler"), "is not a name that Kubernetes allows"),
        (("--existing", "/nowhere.yaml"), "/nowhere.yaml: No such file or directory; name a read"),
    ],
)
def test_a_mistake_is_told_with_what_to_write(arguments: tuple[str, ...], message: str) -> None:
    """Before any cluster is asked."""
    done = _run("--offline", *arguments)

    assert isinstance(done.exception, errors.InputError)
    assert message in str(done.exception)


@pytest.mark.parametrize("text", ["a: [", "kind: Pod\n", "- 1\n", ""])
def test_a_file_that_is_something_else_is_named(tmp_path: pathlib.Path, text: str) -> None:
    """With its path."""
    path = tmp_path / "other.yaml"
    path.write_text(text)

    done = _run("--offline", "--existing", str(path))

    assert isinstance(done.exception, errors.InputError)
    assert str(done.exception).startswith(f"{path}: it is not ")


def test_options_that_exclude_each_other_are_told() -> None:
    """As any wrong usage."""
    assert "exclude each other" in _run("--url", "http://x", "--service", "y").output
    assert "not with --offline" in _run("--offline", "--context", "x").output
