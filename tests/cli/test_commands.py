"""The command line, run as people run it: as a process."""

from __future__ import annotations

import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys

import click
import pytest

from partage.cli import command_group
from tests.sim.small_traces import NODE_HEADER, POD_HEADER, cluster, workload, write

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"


def partage(
    *arguments: str | pathlib.Path, stdin: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    command = [sys.executable, "-c", "from partage.cli.main import main; main()"]
    return subprocess.run(
        [*command, *map(str, arguments)],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def _refused(result: subprocess.CompletedProcess[str]) -> str:
    """The one line that a user's mistake gets."""
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("partage: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


@pytest.mark.parametrize(
    ("mistyped", "says"),
    [
        *(("rnu", " Did you mean 'run'?"), ("dotcor", " Did you mean 'doctor'?")),
        *(("RUN", ""), ("frobnicate", ""), ("x\ny", ""), ("help", "")),
        ("queue", " 'partage ps' shows cards, programs and the queue."),
        ("status", " 'partage ps' shows cards, programs and the queue."),
        ("srun", " 'partage run' starts a program with a share of a card."),
        ("version", " 'partage --version' prints it."),
    ],
)
def test_a_mistyped_command_is_recognized(mistyped: str, says: str) -> None:
    """As kubectl and git do it; where nothing is near, nothing is guessed."""
    said = _refused(partage(mistyped))

    assert said == f"partage: No such command {mistyped!r}.{says} See 'partage --help'.\n"


def test_who_wants_to_end_a_program_is_told_how() -> None:
    """No command does it, and two ways do."""
    said = _refused(partage("kill", "train"))

    assert "'partage top' ends a program: select it and press T." in said
    assert "'partage ps -o wide' shows process ids for kill." in said


def test_commands_of_other_tools_are_led_to_one_that_is_there() -> None:
    """And none of them is a command here."""
    commands = command_group.commands.list_commands(click.Context(command_group.commands))
    for name, hint in command_group.OTHER_NAMES.items():
        assert name not in commands
        (word, *_) = hint.removeprefix("'partage ").partition("'")
        assert word.partition(" ")[0] in (*commands, "--version")


def test_guessing_costs_those_who_type_well_nothing() -> None:
    """What is needed for it is not loaded before."""
    program = (
        "import sys; from partage.cli import command_group; sys.exit('difflib' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_who_interrupts_before_a_command_begins_sees_no_traceback(tmp_path: pathlib.Path) -> None:
    """It ends by the signal, as a shell expects; here while the first library is loaded."""
    (tmp_path / "click.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    command = [sys.executable, "-c", "from partage.cli.main import main; main()", "ps"]

    result = subprocess.run(
        command,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )

    assert (result.returncode, result.stdout, result.stderr) == (-signal.SIGINT, "", "")


def test_who_ignores_interrupts_goes_on(tmp_path: pathlib.Path) -> None:
    """What a shell starts in the background is not stopped by what is meant for others."""
    (tmp_path / "sitecustomize.py").write_text("import signal\nsignal.signal(2, signal.SIG_IGN)\n")
    script = "import signal; from partage.cli import main; main.main()"
    spied = (
        f"import atexit, signal; atexit.register(lambda: print(signal.getsignal(2).name)); {script}"
    )

    result = subprocess.run(
        [sys.executable, "-c", spied, "fence", "levels"],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )

    assert result.stdout.splitlines()[-1] == "SIG_IGN", result.stderr


@pytest.mark.parametrize("name", ["top", "demo", "inspect"])
def test_a_command_in_a_folder_is_a_command(name: str) -> None:
    """Its help is its own."""
    result = partage(name, "--help")

    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(f"Usage: partage {name} [OPTIONS]")


def test_simulate_prints_a_table(tmp_path: pathlib.Path) -> None:
    """One line a policy, and no progress bar where nobody watches."""
    result = partage(
        *("simulate", "--nodes", cluster(tmp_path), "--pods", workload(tmp_path)),
        *("--policy", "priced,fgd", "--seeds", "1"),
    )

    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    lines = result.stdout.splitlines()
    assert lines[0].split() == [
        *("POLICY", "ALLOCATED@100%", "ALLOCATED@130%", "DECISION(MEAN)", "DECISION(P99)")
    ]
    assert [line.split()[0] for line in lines[1:]] == ["priced", "fgd"]


def test_simulate_prints_json(tmp_path: pathlib.Path) -> None:
    """The same numbers for programs."""
    result = partage(
        *("simulate", "--nodes", cluster(tmp_path), "--pods", workload(tmp_path)),
        *("--policy", "bestfit", "--seeds", "2", "--demand", "1.3", "-o", "json"),
    )

    output = json.loads(result.stdout)
    assert (output["apiVersion"], output["kind"]) == ("output.partage.dev/v1", "SimulationReport")
    (report,) = output["policies"]
    assert list(report) == [
        "policy",
        "allocation_at_100",
        "allocation_at_130",
        "decision_us_mean",
        "decision_us_p99",
    ]
    assert report["policy"] == "bestfit"
    assert 50 < report["allocation_at_100"] <= report["allocation_at_130"] <= 100
    assert 0 < report["decision_us_mean"] <= report["decision_us_p99"]


def test_simulate_draws_a_picture(tmp_path: pathlib.Path) -> None:
    """A PNG that is one."""
    picture = tmp_path / "packing.png"
    result = partage(
        *("simulate", "--nodes", cluster(tmp_path), "--pods", workload(tmp_path)),
        *("--seeds", "1", "--plot", picture),
    )

    assert result.returncode == 0, result.stderr
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--policy", "magic"], "unknown policy 'magic'; choose from bestfit, binpack"),
        (["--policy", ""], "unknown policy ''"),
        (["--policy", "priced,,nope"], "unknown policy 'nope'"),
        (["--demand", "-1"], "--demand -1.0 is out of range"),
        (["--demand", "inf"], "--demand inf is out of range"),
        (["--demand", "0.000001"], "no pod arrives"),
        (["--seeds", "0"], "'--seeds': 0 is not in the range"),
        (["--plot", "picture.gif"], "unknown image format"),
        (["--plot", "/nowhere/at/all.png"], "no such folder"),
        (["-o", "yaml"], "'yaml' is not one of"),
        (["--nodes", "missing.csv"], "missing.csv: No such file or directory"),
    ],
)
def test_a_wrong_option_is_one_line(
    tmp_path: pathlib.Path, arguments: list[str], says: str
) -> None:
    """What, where, what to do; exit code 2."""
    options = ["--nodes", str(cluster(tmp_path)), "--pods", str(workload(tmp_path)), *arguments]

    assert says in _refused(partage("simulate", *options))


def test_a_picture_that_cannot_be_written_is_refused_before_the_work(
    tmp_path: pathlib.Path,
) -> None:
    """Not after minutes of simulating."""
    (tmp_path / "folder.png").mkdir()
    files = ("--nodes", cluster(tmp_path), "--pods", workload(tmp_path))

    assert "not writable" in _refused(
        partage("simulate", *files, "--plot", tmp_path / "folder.png")
    )


@pytest.mark.parametrize(
    ("node", "pod", "says"),
    [
        ("a,1,1,1,T4", "p,-5,1,1,1000,", "line 2, column cpu_milli: '-5' is not valid"),
        ("a,1,1,0,T4", "p,5,1,1,1000,", "node a has no cards"),
        ("a,1,1,1,T4", "p,5,1,1,0.5,", "column gpu_milli: '0.5' is not valid"),
        ("a,1,1,1,T4", "p,5,1,0,0,", "no pod requests a card"),
    ],
)
def test_a_wrong_trace_is_one_line(tmp_path: pathlib.Path, node: str, pod: str, says: str) -> None:
    """The line of the file is named."""
    nodes = write(tmp_path / "n.csv", NODE_HEADER, node)
    pods = write(tmp_path / "p.csv", POD_HEADER, pod)

    assert says in _refused(partage("simulate", "--nodes", nodes, "--pods", pods))


POD = "kind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, resources: {limits: {%s}}}]}\n"


def test_fit_says_where_every_pod_goes(tmp_path: pathlib.Path) -> None:
    """Replicas, dialects and refusals in one table; exit code 1 if one does not fit."""
    manifest = write(
        tmp_path / "work.yaml",
        "apiVersion: apps/v1beta1",
        "kind: StatefulSet",
        "metadata: {name: binpack-1}",
        "spec: {replicas: 3, template: {spec: {containers: [",
        "  {name: binpack-1, resources: {limits: {aliyun.com/gpu-mem: 3}}}]}}}",
        "---",
        POD % "nvidia.com/gpu: 2",
    )

    result = partage("fit", "-f", manifest, "--node", "n=2x8Gi", "-o", "json")

    said = json.loads(result.stdout)
    decisions = said["decisions"]
    assert (said["apiVersion"], said["kind"]) == ("output.partage.dev/v1", "Decisions")
    assert result.returncode == 1
    assert [d["pod"] for d in decisions] == ["binpack-1-0", "binpack-1-1", "binpack-1-2", "p"]
    assert [d["grant"] and d["grant"]["node"] for d in decisions] == ["n", "n", "n", None]
    assert decisions[3]["refusal"]["code"] == "card-not-empty"


def test_fit_keeps_pods_of_one_owner_on_different_cards(tmp_path: pathlib.Path) -> None:
    """If they ask for it; the workload is their owner, as in a cluster."""
    manifest = write(
        tmp_path / "work.yaml",
        "kind: Job",
        "metadata: {name: j}",
        "spec: {parallelism: 3, template: {",
        "  metadata: {annotations: {partage.dev/spread: owner}}, spec: {containers: [",
        "  {name: c, resources: {limits: {aliyun.com/gpu-mem: 1}}}]}}}",
    )

    result = partage("fit", "-f", manifest, "--node", "n=2x8Gi", "-o", "json")

    first, second, third = json.loads(result.stdout)["decisions"]
    shares = [d["grant"]["containers"][0]["shares"][0]["index"] for d in (first, second)]
    assert sorted(shares) == [0, 1]
    assert third["refusal"]["code"] == "same-group"


def test_fit_reads_what_kubectl_reads(tmp_path: pathlib.Path) -> None:
    """Empty fields, generated names, Lists, and pods that ask for nothing beside one that does."""
    text = """
kind: List
items:
- kind: Pod
  metadata: {generateName: a-, annotations: , labels: }
  spec:
    initContainers:
    containers:
    - {name: one, resources: {limits: {nvidia.com/gpu: 1}, requests: }}
    - {name: two, resources: }
- kind: Pod
  metadata: {generateName: a-}
  spec: {containers: [{name: one, resources: {limits: {nvidia.com/gpu: +0}}}]}
"""
    manifest = write(tmp_path / "p.yaml", text)

    result = partage("fit", "-f", manifest, "--node", "n=1x8Gi", "-o", "json")

    assert [d["pod"] for d in json.loads(result.stdout)["decisions"]] == ["a-0"]
    assert result.stderr == "note: pod a-1 asks for no card and is left out\n"
    assert result.returncode == 0


def test_fit_reads_standard_input() -> None:
    """As kubectl does with -f -."""
    text = POD % "nvidia.com/gpu: 1"

    result = partage("fit", "-f", "-", "--node", "n=1x8Gi", "-o", "json", stdin=text)

    assert json.loads(result.stdout)["decisions"][0]["grant"]["node"] == "n"


def test_a_refusal_is_complete_in_json(tmp_path: pathlib.Path) -> None:
    """Programs see whether waiting helps, and how much is short for which container."""
    manifest = write(tmp_path / "p.yaml", POD % "aliyun.com/gpu-mem: 9")

    result = partage("fit", "-f", manifest, "--node", "n=1x8Gi", "-o", "json")

    refusal = json.loads(result.stdout)["decisions"][0]["refusal"]
    assert refusal["never"] is True
    assert [(s["container"], s["short"]) for s in refusal["shortages"]] == [("c", 1024)]


def test_fit_prints_a_table_and_succeeds(tmp_path: pathlib.Path) -> None:
    """Everything fits: exit code 0."""
    manifest = write(tmp_path / "p.yaml", POD % "tensorstack.dev/nvidia-gpu-percent: 30")

    result = partage("fit", "-f", manifest, "--node", "a=1x16Gi:T4", "--policy", "binpack")

    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[0].split() == [
        *("POD", "DIALECT", "ASKS", "FOR", "NODE", "CARDS", "WHY")
    ]
    assert "1 of 1 cards had room; binpack leaves 11469 MiB on card 0" in result.stdout


def test_fit_warns_of_what_has_no_effect(tmp_path: pathlib.Path) -> None:
    """On stderr, and in the JSON; the pod is placed all the same."""
    limits = "tencent.com/vcuda-core: 100, tencent.com/vcuda-memory: 4"
    manifest = write(tmp_path / "p.yaml", POD % limits)

    result = partage("fit", "-f", manifest, "--node", "n=1x8Gi", "-o", "json")

    assert result.returncode == 0
    assert result.stderr.startswith("warning: pod p: spec.containers[0]: tencent.com/vcuda-memory")
    assert json.loads(result.stdout)["decisions"][0]["warnings"] == [
        result.stderr.removeprefix("warning: pod p: ").rstrip()
    ]


def test_a_pod_with_a_claim_is_not_placed_here(tmp_path: pathlib.Path) -> None:
    """Where its claim is, only a cluster knows; whether or not admission has seen the pod."""
    annotated = "{name: p, annotations: {elasticgpu.io/egpuc-main: c}}"
    for limits in ("cpu: 1", "partage.dev/claim: 1"):
        pod = (POD % limits).replace("{name: p}", annotated)
        manifest = write(tmp_path / "p.yaml", pod)
        refused = _refused(partage("fit", "-f", manifest, "--node", "n=1x8Gi"))
        assert "pod p has what its claim has" in refused


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        ("aliyun.com/gpu-mem: -3", "spec.containers[0].resources.limits[aliyun.com/gpu-mem]"),
        ("aliyun.com/gpu-mem: 500m", "spec.containers[0].resources.limits[aliyun.com/gpu-mem]"),
        ("aliyun.com/gpu-mem: 1.5", "spec.containers[0].resources.limits[aliyun.com/gpu-mem]"),
        ("tke.cloud.tencent.com/qgpu-memory: 4GB", "write a number of GiB, without a suffix"),
        ("cpu: 1", "pod p asks for no card; add a limit such as aliyun.com/gpu-mem: 3"),
    ],
)
def test_a_wrong_request_is_one_line(tmp_path: pathlib.Path, limits: str, says: str) -> None:
    """The field is named, and what to write instead."""
    manifest = write(tmp_path / "p.yaml", POD % limits)

    assert says in _refused(partage("fit", "-f", manifest, "--node", "n=1x8Gi"))


@pytest.mark.parametrize(
    ("node", "says"),
    [
        ("n=0x8Gi", "a node has 1 to 64 cards"),
        ("n", "write for example dev-server-153=8x23Gi"),
        (
            "n=8x8GB",
            "--node 'n=8x8GB': '8GB' is not a quantity; write 8G (decimal) or 8Gi (binary)",
        ),
        ("n=8x23", "add the unit, for example 23Gi"),
        ("n=8x9E", "no card has 9E bytes"),
        ("n=8x-1Gi", "not a positive amount"),
    ],
)
def test_a_wrong_node_is_one_line(tmp_path: pathlib.Path, node: str, says: str) -> None:
    """A node without cards, and sizes that are none."""
    manifest = write(tmp_path / "p.yaml", POD % "nvidia.com/gpu: 1")

    assert says in _refused(partage("fit", "-f", manifest, "--node", node))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("kind: [", "give a file that kubectl would read"),
        ("- 1", "not a Kubernetes object"),
        ("kind: ConfigMap\nmetadata: {name: c}\n", "no pod in it"),
        ("kind: Pod\nspec: {containers: 7}\n", "$.spec.containers"),
        (
            "kind: Deployment\nspec: {replicas: x, template: {}}\n",
            "'x' is not a number of replicas",
        ),
        (
            "kind: Job\nspec: {parallelism: true, template: {}}\n",
            "True is not a number of replicas",
        ),
        ("kind: Pod\nmetadata: {creationTimestamp: 2020-13-45}\n", "month must be in 1..12"),
        ("kind: Pod\nmetadata: !!bool abc\n", "give a file that kubectl would read"),
        ("kind: Pod\nmetadata: hi\n", "metadata is 'hi', and not an object"),
        ("kind: Pod\nmetadata: {name: 'a\\nb'}\n", "is not a name"),
        ("kind: Pod\nmetadata: {name: 0x%s}\n" % ("f" * 6000), "is not a name"),
        ("kind: Pod\nmetadata: {name: a, labels: {aliyun.com/gpu-count: 2}}\n", "quote it"),
        ("&a\nkind: List\nitems: [*a]\n", "not a Kubernetes object"),
        ("kind: Pod\nmetadata: {name: a}\n---\nkind: Pod\nmetadata: {name: a}\n", "default/a"),
    ],
)
def test_a_wrong_manifest_is_one_line(tmp_path: pathlib.Path, text: str, says: str) -> None:
    """Not YAML, not an object, not a pod."""
    manifest = write(tmp_path / "p.yaml", text)

    assert says in _refused(partage("fit", "-f", manifest, "--node", "n=1x8Gi"))


def test_two_nodes_of_one_name_are_refused(tmp_path: pathlib.Path) -> None:
    """The second would take the place of the first, silently."""
    manifest = write(tmp_path / "p.yaml", POD % "nvidia.com/gpu: 1")

    result = partage("fit", "-f", manifest, "--node", "n=1x8Gi", "--node", "n=2x8Gi")

    assert "n is given twice" in _refused(result)


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_and_a_reader_that_left_are_no_tracebacks(
    monkeypatch: pytest.MonkeyPatch, unbuffered: str
) -> None:
    """The first is an error, the second is what head does."""
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    program = (sys.executable, "-c", "from partage.cli.main import main; main()")
    fit = ("fit", "-f", str(EXAMPLES / "mixed.yaml"), "--node", "n=8x23Gi")
    command = shlex.join([*program, *fit])
    full = subprocess.run(
        ["bash", "-c", f"{command} > /dev/full"], capture_output=True, text=True, check=False
    )
    left = subprocess.run(
        ["bash", "-c", f"{command} | true"], capture_output=True, text=True, check=False
    )

    assert (full.returncode, full.stderr.count("\n")) == (1, 1)
    assert full.stderr.startswith(
        "partage: cannot write to standard output: No space left on device; make room there"
    )
    assert left.stderr == ""


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    ("arguments", "code"), [("frobnicate", 2), ("fit --memory 5x", 2), ("--help", 0)]
)
def test_a_full_standard_error_leaves_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, arguments: str, code: int, unbuffered: str
) -> None:
    """Nobody reads why, and scripts still know what happened."""
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    program = shlex.quote(sys.executable)
    command = f"{program} -c 'from partage.cli.main import main; main()' {arguments}"

    done = subprocess.run(
        ["bash", "-c", f"{command} 2> /dev/full"], capture_output=True, check=False
    )

    assert done.returncode == code


@pytest.mark.parametrize(
    "command", [*command_group.commands.list_commands(click.Context(command_group.commands)), ""]
)
def test_help_has_room_in_80_columns(command: str) -> None:
    """Examples are not wrapped, so they have to be short."""
    for words in _commands(command):
        lines = partage(*words, "--help").stdout.splitlines()
        assert lines
        assert [line for line in lines if len(line) > 80] == []


def _commands(name: str) -> list[list[str]]:
    """A command, and those in it."""
    if not name:
        return [[]]
    command = command_group.commands.get_command(click.Context(command_group.commands), name)
    return [[name], *([name, subcommand] for subcommand in getattr(command, "commands", ()))]


def test_help_has_examples() -> None:
    """Of every command that takes options."""
    for command in ("fit", "simulate"):
        assert f"partage {command} -" in partage(command, "--help").stdout
    assert "Commands:" in partage().stdout
