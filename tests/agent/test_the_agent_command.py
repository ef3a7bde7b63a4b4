"""``partage agent`` as it is started: its flags, what it says of mistakes, and how it waits."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import click
import msgspec
import pytest

from partage.agent import settings, watch
from partage.agent.containers import card_time
from partage.cli.commands import agent as command
from partage.core import demands, errors
from partage.dialects import compute_policies, contract, registry
from partage.fence.watch.escapes import Then
from tests import simulated_machines
from tests.agent import agent_node
from tests.cli import fake_cluster
from tests.kube import scripted_server, things


def chosen(*words: str) -> settings.Settings:
    """The settings that a command line means."""
    context = command.agent.make_context("agent", [*words])
    return settings.chosen(context.params)


class TestSettings:
    """Flags become settings."""

    def test_a_name_is_enough(self) -> None:
        """All else is as a node has it; what surprises or costs has to be asked for."""
        assert chosen("--node", "n") == settings.Settings(node="n")
        assert set(settings.Settings(node="n").dialects) == {
            dialect.name for dialect in registry.DIALECTS
        } - {"hami", "elastic"}
        assert str(chosen("--node", "n").device_plugins) == "/var/lib/kubelet/device-plugins"

    def test_the_help_names_the_dialects_that_have_to_be_asked_for(self) -> None:
        """The text is written by hand: the command must not load all dialects to print it."""
        [option] = [option for option in command.agent.params if option.name == "dialects"]
        assert isinstance(option, click.Option)
        asked_for = sorted({*registry.dialect_names()} - {*registry.served_by_default()})
        assert f"all but {' and '.join(asked_for)}" in (option.help or "")

    def test_every_flag_has_its_effect(self) -> None:
        """Folders become absolute: the container runtime is told of them."""
        words = (
            "--node n --kubeconfig k --context c --dialects aliyun,hami --memory-unit MiB "
            "--hami-split 4 --root r --library-folder l --kubelet-folder u --cdi-folder d "
            "--driver-files cdi --driver-cdi x --driver-cdi y --t9k-label --address 0.0.0.0 "
            "--port 0 --old-metrics hami,elastic --quiet-after-xid 30 --outside tell "
            "--outside-class batch=end --outside-class lab=pause --compute-class batch=offline "
            "--compute-class batch=2 --compute-class gold=best-effort"
        )
        folder = Path.cwd()
        assert chosen(*words.split()) == settings.Settings(
            node="n",
            kubeconfig="k",
            context="c",
            dialects=("aliyun", "hami"),
            counting=contract.Settings(memory_unit_mib=1, hami_split=4, t9k_label=True),
            root=folder / "r",
            library=folder / "l",
            kubelet=folder / "u",
            cdi=folder / "d",
            driver_specs=(folder / "x", folder / "y"),
            driver_files="cdi",
            address="0.0.0.0",
            port=0,
            old_metrics=("hami", "elastic"),
            outside=watch.Policy(Then.TELL, {"batch": Then.END, "lab": Then.PAUSE}),
            compute_classes={
                "batch": card_time.ClassRule(qos=demands.Qos.OFFLINE, weight=2),
                "gold": card_time.ClassRule(policy=compute_policies.Policy.BEST_EFFORT),
            },
            quiet_s=30.0,
        )

    def test_the_flags_of_gpushare_are_taken(self) -> None:
        """A manifest of its device plugin works when only the image is changed."""
        words = "--node n -logtostderr --v=5 --memory-unit=MiB --mps --health-check --query-kubelet"
        assert chosen(*words.split()) == settings.Settings(
            node="n", counting=contract.Settings(memory_unit_mib=1)
        )

    def test_blanks_and_empty_words_in_lists_are_nothing(self) -> None:
        """As people write lists."""
        agent_settings = chosen("--node", "n", "--dialects", " aliyun, ,t9k,", "--old-metrics", "")
        assert (agent_settings.dialects, agent_settings.old_metrics) == (("aliyun", "t9k"), ())

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            ("", "does not know which node it is on; set --node, or NODE_NAME"),
            ("--node n --dialects gpushare", "--dialects: 'gpushare' is unknown; choose"),
            ("--node n --old-metrics x", "--old-metrics: 'x' is unknown; choose from"),
            ("--node n --outside-class batch", "is not a PriorityClass with an action"),
            (
                "--node n --compute-class batch",
                "is not a PriorityClass with a word for its compute",
            ),
            (
                "--node n --compute-class batch=26",
                "batch=offline; the words are fixed, burst, best",
            ),
            ("--node n --outside-class batch=stop", "batch=tell; the actions are tell, pause, end"),
        ],
    )
    def test_mistakes_are_explained(
        self, words: str, message: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """With what to write instead."""
        monkeypatch.delenv("NODE_NAME", raising=False)
        with pytest.raises(errors.InputError, match=message):
            chosen(*words.split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "which node it is on; set --node, or NODE_NAME as deploy/agent.yaml does"),
        ("--node n --memory-unit GB", "'GB' is not one of 'GiB', 'MiB'"),
        ("--node n --dialects gpushare", "choose from partage, aliyun,"),
        ("--node n --old-metrics prometheus", "--old-metrics: 'prometheus' is unknown"),
        ("--node n --hami-split 0", "0 is not in the range 1<=x<=256"),
        ("--node n --port 70000", "70000 is not in the range"),
        ("--node n --driver-files none", "'none' is not one of 'auto', 'cdi', 'runtime'"),
        ("--node n --quiet-after-xid 0", "0.0 is not in the range"),
        ("--node n --memroy-unit MiB", "No such option"),
    ],
)
async def test_wrong_words_are_a_line_and_exit_code_2(words: str, message: str) -> None:
    """Not a traceback, and nothing was started."""
    done = await fake_cluster.run("partage", "agent", *words.split(), environ={})
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert done.err.startswith("partage: ")
    assert done.err.count("\n") == 1


async def test_a_cluster_that_nobody_described_ends_it(tmp_path: Path) -> None:
    """Neither a kubeconfig nor a service account: it cannot wait for that to change."""
    words = ["agent", "--node", "n", "--kubeconfig", str(tmp_path / "nothing")]
    done = await fake_cluster.run("partage", *words, environ={"HOME": str(tmp_path)})
    assert done.code == 1
    assert done.err.splitlines()[-1].startswith("partage: ")
    assert "nothing" in done.err
    assert "Traceback" not in done.err


class Running:
    """An agent that runs, and what it says."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[dict[str, Any]] = []
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self.lines.append(json.loads(line))

    def texts(self, containing: str) -> list[str]:
        """The lines that have these words."""
        return [line["text"] for line in self.lines if containing in line["text"]]

    async def says(self, containing: str) -> str:
        """Wait for a line with these words."""
        condition = lambda: self.texts(containing) or self.process.returncode is not None  # noqa: E731
        await scripted_server.until(condition, within_s=60)
        assert self.texts(containing), self.lines
        return self.texts(containing)[0]

    async def get(self, path: str) -> tuple[int, str]:
        """What it answers over HTTP."""
        url = (await self.says("listening on")).rpartition(" ")[2]
        async with aiohttp.ClientSession() as session, session.get(url + path) as answer:
            return answer.status, await answer.text()

    async def stop(self) -> int:
        """End it as Kubernetes does."""
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
        code = await asyncio.wait_for(self.process.wait(), 60)
        await self._reader
        return code


@contextlib.asynccontextmanager
async def running(
    folder: Path, server: str, *words: str, environment: dict[str, str]
) -> AsyncIterator[Running]:
    """An agent on a node whose folders are all in one."""
    file = fake_cluster.kubeconfig(folder / "kubeconfig", server)
    (folder / "kubelet" / "device-plugins").mkdir(parents=True)
    places = {
        "--kubeconfig": file,
        "--root": folder / "fences",
        "--library-folder": folder / "lib",
        "--kubelet-folder": folder / "kubelet",
        "--cdi-folder": folder / "cdi",
        "--driver-cdi": folder / "driver",
        "--port": 0,
    }
    flags = [str(word) for pair in places.items() for word in pair]
    process = await asyncio.create_subprocess_exec(
        Path(sys.executable).with_name("partage"),
        "agent",
        *flags,
        *words,
        stderr=asyncio.subprocess.PIPE,
        env={"PATH": os.environ["PATH"], "NODE_NAME": agent_node.NODE, **environment},
    )
    agent = Running(process)
    try:
        yield agent
    finally:
        if process.returncode is None:
            process.kill()
        await agent.stop()


@pytest.fixture
def nobody() -> str:
    """The address of a server that does not run."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}"


async def test_without_a_driver_it_says_so_and_waits(tmp_path: Path, nobody: str) -> None:
    """A DaemonSet may be building it; gpushare's flags are taken, and SIGTERM ends it."""
    empty = {"LD_LIBRARY_PATH": str(tmp_path)}
    words = "--memory-unit MiB --mps -logtostderr --v=5"
    async with running(tmp_path, nobody, *words.split(), environment=empty) as agent:
        lines = await agent.says("waiting until there are cards")
        assert "install NVIDIA's driver, which has libnvidia-ml.so.1" in lines
        assert await agent.get("/readyz") == (503, "waiting for the NVIDIA driver")
        assert (await agent.get("/healthz"))[0] == 200
        assert [line["level"] for line in agent.lines if "waiting" in line["text"]] == ["warning"]
        assert await agent.stop() == 0
    assert "Traceback" not in json.dumps(agent.lines)


async def test_an_unreachable_api_server_is_waited_for(tmp_path: Path, nobody: str) -> None:
    """It is said what cannot be reached; nothing is offered to the kubelet meanwhile."""
    machine = simulated_machines.machine(tmp_path)
    async with running(tmp_path, nobody, environment=machine) as agent:
        assert "trying again" in await agent.says("no connection")
        assert agent.texts("2 cards")
        assert await agent.get("/readyz") == (503, "reading the node and its pods")
        code, report = await agent.get("/v1/report")
        assert code == 200
        assert len(json.loads(report)["cards"]) == 2
        assert await agent.stop() == 0
    assert list((tmp_path / "kubelet" / "device-plugins").iterdir()) == []


async def test_a_port_that_is_taken_ends_it(tmp_path: Path, nobody: str) -> None:
    """With the flag that names another."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        environment = {"LD_LIBRARY_PATH": str(tmp_path)}
        words = ["agent", "--node", "n", "--port", port, "--root", str(tmp_path / "fences")]
        words += ["--library-folder", str(tmp_path / "lib")]
        words += ["--kubeconfig", str(fake_cluster.kubeconfig(tmp_path / "config", nobody))]
        done = await fake_cluster.run("partage", *words, environ=environment)
    assert done.code == 2
    last = done.err.splitlines()[-1]
    assert last.startswith(f"partage: cannot listen on 127.0.0.1 port {port}")
    assert last.endswith("choose another address or port with --address or --port")


async def test_the_node_is_published_as_soon_as_it_is_known(
    tmp_path: Path, server: scripted_server.Server
) -> None:
    """Cards of the simulated driver, on a node without pods or a kubelet."""
    node = agent_node.node_object()

    def respond(request: scripted_server.Request) -> scripted_server.Step:
        if request.verb == "PATCH":
            return scripted_server.Answer()
        if request.path == "/api/v1/nodes":
            first = {"type": "ADDED", "object": msgspec.to_builtins(node)}
            return scripted_server.Watch(first, things.end_of_list(1))
        if request.path == "/api/v1/pods":
            return scripted_server.Watch(things.end_of_list(1))
        return scripted_server.refusal(404, "NotFound")

    server.respond = respond
    machine = simulated_machines.machine(tmp_path, cards="16GiB:Tesla T4,24GiB")
    words = ["--dialects", "aliyun", "--t9k-label"]
    async with running(tmp_path, server.url, *words, environment=machine) as agent:
        await scripted_server.until(
            lambda: agent_node.bodies(server, "PATCH", "/status"), within_s=60
        )
        status, why = await agent.get("/readyz")
        assert (status, why) == (503, "aliyun.com/gpu-core.percentage is not registered yet")
        assert await agent.stop() == 0
    [meta] = agent_node.bodies(server, "PATCH", "/nodes/gpu-1")[:1]
    assert meta["metadata"]["labels"]["nvidia.com/gpu.count"] == "2"
    assert meta["metadata"]["labels"]["sched.tensorstack.dev/accelerator"] == "nvidia-gpu"
    sizes = [
        card["memory_mib"]
        for card in json.loads(meta["metadata"]["annotations"]["partage.dev/cards"])["cards"]
    ]
    assert sizes == [16384, 24576]
    assert agent_node.bodies(server, "PATCH", "/status")[0]["status"]["capacity"] == {
        "aliyun.com/gpu-count": "2"
    }
