"""``partage slurm check``: each finding has a configuration that is wrong, and a right one."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partage.devices import nvml
from partage.slurm.checks import machine_facts
from partage.slurm.configuration import findings, gres_lines
from tests.slurm import configurations
from tests.slurm.configurations import CGROUP, GRES, NEW, NODE, OLD, SLURM

PROBLEM, NOTE = findings.Severity.PROBLEM, findings.Severity.NOTE
ONE_CARD = "NodeName=gpu7 Gres=gpu:t4:1,{}\n"


def only(results: list[findings.Finding], code: str) -> findings.Finding:
    """The one finding that there is."""
    assert [finding.code for finding in results] == [code], results
    return results[0]


def test_what_is_right_has_no_findings() -> None:
    """All other tests here change one thing of it."""
    assert configurations.checked() == []


@pytest.mark.parametrize(
    ("types", "gres", "file", "line"),
    [
        ("gpu,mps,shard", GRES, "slurm.conf", 4),
        (
            "gpu,shard",
            f"{GRES}NodeName=gpu7 Name=mps Count=200 Flags=all_sharing\n",
            "gres.conf",
            4,
        ),
    ],
)
def test_mps_and_shard_together(types: str, gres: str, file: str, line: int) -> None:
    """Jobs lose their card, in every version."""
    slurm = SLURM + NODE.replace("gpu,shard", types)

    results = configurations.checked(slurm=slurm, gres=gres)

    finding = next(result for result in results if result.code == "two-sharings")
    assert (finding.severity, finding.line) == (PROBLEM, line)
    assert finding.file == f"/etc/slurm/{file}"
    assert "choose one of them" in finding.remedy


def test_cards_without_a_type() -> None:
    """Only versions before 23.11 need one; where the version is not known it is a note."""
    slurm = SLURM.replace(",MULTIPLE_SHARING_GRES_PJ", "\nJobSubmitPlugins=lua")
    untyped = {
        "slurm": slurm + NODE.replace("gpu:t4:2", "gpu:2"),
        "gres": GRES.replace("Type=t4 File=/dev/nvidia0", "File=/dev/nvidia0").replace(
            "Type=t4 File=/dev/nvidia1", "File=/dev/nvidia1"
        ),
    }
    machine = configurations.facts(version=OLD)

    first, second = configurations.checked(**untyped, machine=machine)
    assert {first.code, second.code} == {"no-type"}
    assert (first.severity, first.line, second.line) == (PROBLEM, 1, 2)
    assert "write Type=tesla_t4 here" in first.remedy
    assert configurations.checked(slurm=slurm + NODE, machine=machine) == []
    detected = untyped | {"gres": f"AutoDetect=nvml\n{untyped['gres']}"}
    assert configurations.checked(**detected, machine=machine) == []
    unknown = configurations.checked(**untyped, machine=configurations.facts(version=None))
    assert {(result.code, result.severity) for result in unknown} == {
        ("no-type", NOTE),
        ("several-cards", NOTE),
    }
    untyped["slurm"] = SLURM + NODE.replace("gpu:t4:2", "gpu:2")
    assert configurations.checked(**untyped, machine=configurations.facts(version=NEW)) == []


@pytest.mark.parametrize("kind", [machine_facts.Kind.MISSING, machine_facts.Kind.OTHER])
def test_a_file_that_is_no_device(kind: machine_facts.Kind) -> None:
    """Slurm counts it, and its jobs see no card."""
    files = {"/dev/nvidia1": machine_facts.File(kind)}

    results = configurations.checked(machine=configurations.facts(files=files))

    finding = next(result for result in results if result.code == "no-device")
    assert (finding.severity, finding.file, finding.line) == (PROBLEM, "/etc/slurm/gres.conf", 2)
    assert "/dev/nvidia1" in finding.problem
    assert finding.remedy == "write one of /dev/nvidia0, /dev/nvidia1"


def test_a_card_that_the_driver_does_not_have() -> None:
    """gres.conf has three cards, and the machine two; the third is a device all the same."""
    files = {"/dev/nvidia2": machine_facts.File(machine_facts.Kind.CHARACTER, 2)}
    lies = {
        "slurm": SLURM + NODE.replace("gpu:t4:2,shard:32", "gpu:t4:3,shard:48"),
        "gres": GRES.replace("nvidia1", "nvidia[1-2]").replace("Count=32", "Count=48"),
    }

    finding = only(
        configurations.checked(**lies, machine=configurations.facts(files=files)), "no-card"
    )

    assert (finding.severity, finding.file, finding.line) == (PROBLEM, "/etc/slurm/gres.conf", 2)
    assert finding.problem == "/dev/nvidia2 is no card of the driver, which has 2"
    assert finding.remedy == "write one of /dev/nvidia0, /dev/nvidia1"
    unknown = configurations.without_devices(configurations.facts(files=files))
    only(configurations.checked(**lies, machine=unknown), "cards-unknown")


@pytest.mark.parametrize("second", ["/dev/nvidia0", "/dev/dri/also-nvidia0"])
def test_a_card_that_is_there_twice(second: str) -> None:
    """By the same file, or by another one of the same device."""
    files = {second: machine_facts.File(machine_facts.Kind.CHARACTER, 0)}
    gres = GRES.replace("/dev/nvidia1", second)

    results = configurations.checked(gres=gres, machine=configurations.facts(files=files))

    finding = next(result for result in results if result.code == "card-twice")
    assert (finding.severity, finding.line) == (PROBLEM, 2)
    assert f"{second} is the same card as /dev/nvidia0, and counts twice as gpu" in finding.problem


def test_shards_of_a_card_that_are_there_twice() -> None:
    """In two lines with the same File."""
    gpus = "".join(GRES.splitlines(keepends=True)[:2])
    shards = "Name=shard Count=8 File=/dev/nvidia0\n" * 2

    results = configurations.checked(gres=gpus + shards)

    assert ("card-twice", 4) in {(result.code, result.line) for result in results}


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ("NodeName=gpu7 Name=shard Count=33\n", "Count=33 does not give each of 2 cards the same"),
        ("NodeName=gpu7 Name=shard Count=0\n", "Count=0 does not"),
        ("NodeName=gpu7 Name=shard\n", "no Count does not"),
        ("NodeName=gpu7 Name=shard Count=16 File=/dev/nvidia0\n", "/dev/nvidia1 has no shard"),
        ("Name=shard Count=16\nName=shard Count=16\n", "several lines of shard have no File"),
        (
            "Name=shard Count=16 File=/dev/nvidia0\nName=shard Count=16 File=/dev/nvidia9\n",
            "/dev/nvidia9 is not the File of a gpu",
        ),
    ],
)
def test_a_count_that_is_not_that_of_the_cards(lines: str, says: str) -> None:
    """Each card has its own shards, and the same number where no File is named."""
    gpus = "".join(GRES.splitlines(keepends=True)[:2])

    results = configurations.checked(gres=gpus + lines)

    problems = [result for result in results if result.code == "shard-count"]
    assert any(says in result.problem for result in problems), results
    assert {(result.severity, result.file) for result in problems} == {
        (PROBLEM, "/etc/slurm/gres.conf")
    }


def test_the_same_count_for_cards_of_different_sizes() -> None:
    """A shard is then not the same on both, and nobody knows how much 8 of them are."""
    machine = configurations.facts(configurations.device(0), configurations.device(1, 24576))
    own = (
        "NodeName=gpu7 Name=shard Count=16 File=/dev/nvidia0\n"
        "NodeName=gpu7 Name=shard Count=24 File=/dev/nvidia1\n"
    )
    gpus = "".join(GRES.splitlines(keepends=True)[:2])

    finding = only(configurations.checked(machine=machine), "shard-count")
    assert finding.severity is PROBLEM
    assert finding.problem == "a shard is 1024 MiB on one card and 1536 MiB on another"
    assert "Count=16 for /dev/nvidia0; Count=24 for /dev/nvidia1" in finding.remedy
    right = SLURM + NODE.replace("shard:32", "shard:40")
    assert configurations.checked(slurm=right, gres=gpus + own, machine=machine) == []


@pytest.mark.parametrize(("count", "size_mib"), [(20, 1638), (2, 16384)])
def test_a_shard_that_is_no_gib(count: int, size_mib: int) -> None:
    """It works, and is told."""
    finding = only(
        configurations.checked(
            slurm=SLURM + NODE.replace("shard:32", f"shard:{count}"),
            gres=GRES.replace("Count=32", f"Count={count}"),
        ),
        "shard-size",
    )

    assert (finding.severity, finding.line) == (NOTE, 3)
    assert finding.problem == f"a shard is {size_mib} MiB, not a GiB"


@pytest.mark.parametrize("count", [64, 128])
def test_a_part_of_a_gib_is_a_shard(count: int) -> None:
    """Several shards in each GiB are as exact."""
    assert (
        configurations.checked(
            slurm=SLURM + NODE.replace("shard:32", f"shard:{count}"),
            gres=GRES.replace("Count=32", f"Count={count}"),
        )
        == []
    )


def test_no_file_to_preload_from() -> None:
    """It is a note: a node is made ready by a command of its own."""
    finding = only(
        configurations.checked(machine=configurations.facts(preload=False)), "no-preload-file"
    )

    assert (finding.severity, finding.file) == (NOTE, "/etc/ld.so.preload")
    assert "partage slurm prepare" in finding.remedy


def test_mps_on_one_card_at_a_time() -> None:
    """The flag is needed where there are several cards."""
    slurm = SLURM + NODE.replace("shard:32", "mps:200").replace("gpu,shard", "gpu,mps")
    gres = GRES.replace("shard Count=32", "mps Count=200")

    finding = only(configurations.checked(slurm=slurm, gres=gres), "mps-one-card")
    assert (finding.severity, finding.line) == (PROBLEM, 3)
    assert finding.remedy == "add Flags=all_sharing to this line"
    flagged = gres.replace("Count=200", "Count=200 Flags=all_sharing")
    assert configurations.checked(slurm=slurm, gres=flagged) == []
    one = SLURM + "GresTypes=gpu,mps\n" + ONE_CARD.format("mps:100")
    first = GRES.splitlines()[0] + "\nName=mps Count=100\n"
    machine = configurations.facts(configurations.device(0))
    assert configurations.checked(slurm=one, gres=first, machine=machine) == []


def test_mps_that_is_no_percent() -> None:
    """A note, as Slurm computes the percent from any count."""
    slurm = SLURM + NODE.replace("shard:32", "mps:50").replace("gpu,shard", "gpu,mps")
    gres = GRES.replace("shard Count=32", "mps Count=50 Flags=all_sharing")

    finding = only(configurations.checked(slurm=slurm, gres=gres), "mps-count")

    assert (finding.severity, finding.remedy) == (NOTE, "write Count=100 for each card")


@pytest.mark.parametrize(
    ("written", "remedy"),
    [
        ("TaskPlugin=task/none", "write TaskPlugin=task/cgroup"),
        ("TaskPlugin=task/affinity", "write TaskPlugin=task/affinity,task/cgroup"),
        ("", "write TaskPlugin=task/cgroup"),
    ],
)
def test_no_plugin_constrains_devices(written: str, remedy: str) -> None:
    """A job could open every card."""
    slurm = SLURM.replace("TaskPlugin=task/affinity,task/cgroup", written) + NODE

    finding = only(configurations.checked(slurm=slurm), "task-plugin")

    assert (finding.severity, finding.remedy) == (PROBLEM, remedy)
    assert finding.line == (3 if written else 0)


@pytest.mark.parametrize(("cgroup", "line"), [("ConstrainDevices=no\n", 1), ("", 0)])
def test_devices_are_not_constrained(cgroup: str, line: int) -> None:
    """Slurm's default is no."""
    finding = only(configurations.checked(cgroup=cgroup), "constrain-devices")

    assert (finding.severity, finding.line) == (PROBLEM, line)
    assert finding.file == "/etc/slurm/cgroup.conf"


@pytest.mark.parametrize("written", ["SelectType=select/linear", ""])
def test_another_way_to_select(written: str) -> None:
    """Nothing else counts shards."""
    slurm = SLURM.replace("SelectType=select/cons_tres", written) + NODE

    finding = only(configurations.checked(slurm=slurm), "select-type")

    assert (finding.severity, finding.remedy) == (PROBLEM, "write SelectType=select/cons_tres")


def test_a_partition_has_other_parameters() -> None:
    """What a partition says is not what holds for all."""
    partition = "PartitionName=a Nodes=gpu7 SelectTypeParameters=CR_Socket\n"

    assert configurations.checked(slurm=SLURM + NODE + partition) == []


def test_accounting_without_its_daemon() -> None:
    """slurmctld would not start."""
    accounted = SLURM + NODE + "AccountingStorageTRES=gres/gpu,gres/shard\n"
    daemon = "AccountingStorageType=accounting_storage/slurmdbd\n"

    finding = only(configurations.checked(slurm=accounted), "accounting")
    assert (finding.severity, finding.line) == (PROBLEM, 6)
    assert configurations.checked(slurm=accounted + daemon) == []
    assert configurations.checked(slurm=SLURM + NODE + "AccountingStorageTRES=cpu\n") == []


@pytest.mark.parametrize(
    "gres", ["gpu:t4:2,shard:30", "gpu:t4:3,shard:32", "gpu:a30:2,shard:32", "gpu:t4:2", ""]
)
def test_the_two_files_disagree(gres: str) -> None:
    """slurmd does not start, or the node stays away."""
    slurm = SLURM + NODE.replace("gpu:t4:2,shard:32", gres or "gpu:t4:1")

    finding = only(configurations.checked(slurm=slurm), "gres-differs")

    assert (finding.severity, finding.file, finding.line) == (PROBLEM, "/etc/slurm/slurm.conf", 5)
    assert finding.remedy == "write Gres=gpu:t4:2,shard:32"


def test_a_default_for_nodes_is_followed() -> None:
    """What NodeName=DEFAULT says holds for those after it that say nothing."""
    slurm = (
        SLURM + "GresTypes=gpu,shard\nNodeName=DEFAULT Gres=gpu:t4:2,shard:32\nNodeName=gpu[1-9]\n"
    )

    assert configurations.checked(slurm=slurm) == []
    wrong = configurations.checked(slurm=slurm.replace("shard:32", "shard:31"))
    assert only(wrong, "gres-differs").line == 5


def test_types_in_another_order() -> None:
    """Slurm's numbers of the cards are not those that gres.conf suggests."""
    machine = configurations.facts(configurations.device(0), configurations.device(1, 24576))
    gres = (
        "NodeName=gpu7 Name=gpu Type=t4 File=/dev/nvidia0\n"
        "NodeName=gpu7 Name=gpu Type=a30 File=/dev/nvidia1\n"
        "NodeName=gpu7 Name=shard Count=16 File=/dev/nvidia0\n"
        "NodeName=gpu7 Name=shard Count=24 File=/dev/nvidia1\n"
    )
    right = SLURM + NODE.replace("gpu:t4:2,shard:32", "gpu:t4:1,gpu:a30:1,shard:40")
    wrong = SLURM + NODE.replace("gpu:t4:2,shard:32", "gpu:a30:1,gpu:t4:1,shard:40")

    finding = only(configurations.checked(slurm=wrong, gres=gres, machine=machine), "type-order")
    assert (finding.severity, finding.remedy) == (
        NOTE,
        "write Gres=gpu:t4:1,gpu:a30:1,shard:40",
    )
    assert configurations.checked(slurm=right, gres=gres, machine=machine) == []


def test_resources_that_slurm_does_not_know() -> None:
    """GresTypes names them all."""
    slurm = SLURM + NODE.replace("GresTypes=gpu,shard", "GresTypes=gpu")

    finding = only(configurations.checked(slurm=slurm), "gres-types")

    assert (finding.severity, finding.remedy) == (PROBLEM, "write GresTypes=gpu,shard")


def test_several_cards_for_one_job() -> None:
    """Before 23.11 a job has one card; since then a parameter is needed."""
    plain = SLURM.replace(",MULTIPLE_SHARING_GRES_PJ", "") + NODE
    old = configurations.facts(version=OLD)

    finding = only(configurations.checked(machine=old, slurm=plain), "several-cards")
    assert (finding.severity, "partage slurm install" in finding.remedy) == (NOTE, True)
    assert configurations.checked(machine=old, slurm=plain + "JobSubmitPlugins=lua\n") == []
    unknown_word = only(configurations.checked(machine=old), "several-cards")
    assert (unknown_word.severity, unknown_word.line) == (PROBLEM, 2)
    newer = only(configurations.checked(slurm=plain), "several-cards")
    assert newer.severity is NOTE
    assert newer.remedy == "write SelectTypeParameters=CR_Core,MULTIPLE_SHARING_GRES_PJ"


def test_a_machine_that_is_no_node() -> None:
    """The settings are still checked."""
    slurm = SLURM.replace("select/cons_tres", "select/linear") + NODE.replace("gpu7", "gpu[1-6,8]")

    results = configurations.checked(slurm=slurm)

    assert [result.code for result in results] == ["no-node", "select-type"]


def test_a_card_that_no_line_names() -> None:
    """Perhaps it is kept for others."""
    machine = configurations.facts(*(configurations.device(minor) for minor in range(3)))

    finding = only(configurations.checked(machine=machine), "card-unused")

    assert (finding.severity, finding.line) == (NOTE, 2)
    assert "/dev/nvidia2" in finding.problem


def test_a_driver_that_cannot_be_asked() -> None:
    """It is told that the counts were not compared."""
    machine = configurations.without_devices(configurations.facts())

    finding = only(configurations.checked(machine=machine), "cards-unknown")

    assert (finding.severity, "no driver" in finding.problem) == (NOTE, True)


def test_plugins_that_are_missing() -> None:
    """No job starts without a required one."""
    plugstack = "required /opt/a.so\noptional /opt/b.so x=1\nrequired plain.so\n/opt/c.so\n"
    plugstack += configurations.HELD
    files = {path: machine_facts.File(machine_facts.Kind.MISSING) for path in ("/opt/a.so",)}

    slurm = configurations.SLURM + configurations.NODE + configurations.SCRIPTS
    machine = configurations.facts(files=files)
    results = configurations.checked(slurm=slurm, plugstack=plugstack, machine=machine)

    assert [(result.code, result.line) for result in results] == [("no-plugin", 1), ("bad-line", 4)]


@pytest.mark.parametrize(
    ("slurm", "gres", "line"),
    [
        (SLURM + NODE + "what is this\n", GRES, 6),
        (SLURM + NODE, GRES + "Name=shard Count=many\n", 4),
        (SLURM + NODE.replace("NodeName=gpu7", "NodeName=gpu[7-"), GRES, 5),
        (SLURM + NODE.replace("NodeName=gpu7", "NodeName=gpu[0-99999999]"), GRES, 5),
    ],
)
def test_a_line_that_nobody_can_read(slurm: str, gres: str, line: int) -> None:
    """It is named, and nothing fails."""
    results = configurations.checked(slurm=slurm, gres=gres)

    assert ("bad-line", line, PROBLEM) in {
        (result.code, result.line, result.severity) for result in results
    }


# Few and short ones are drawn quickly; what a type is made of has a property of its own.
_models = st.sampled_from(["NVIDIA A30", "A30", "4090", "", "a:b,c=[1-2] #", "Tesla T4 16384m"])


@st.composite
def _devices(draw: st.DrawFn) -> tuple[nvml.Device, ...]:
    minors = draw(st.lists(st.integers(0, 255), min_size=1, max_size=8, unique=True))
    return tuple(
        configurations.device(minor, draw(st.integers(1024, 200_000)), draw(_models))
        for minor in minors
    )


@given(_devices(), st.sampled_from(["shard", "mps"]), st.integers(1, 64))
def test_what_gres_conf_prints_is_right(
    devices: tuple[nvml.Device, ...], sharing: str, per_gib: int
) -> None:
    """Whatever the cards are: the check finds nothing in it."""
    lines = gres_lines.lines(
        devices, node=configurations.HOST, sharing=sharing, shards_per_gib=per_gib
    )

    results = configurations.checked(
        slurm=SLURM + "\n".join(lines.slurm_conf),
        gres="\n".join(lines.gres_conf),
        machine=configurations.facts(*devices),
    )

    assert results == []
    assert lines.left_out == ()


@given(st.text(max_size=300), st.text(max_size=300))
def test_no_text_is_too_strange(slurm: str, gres: str) -> None:
    """Findings, and no exception."""
    parts = itertools.product((SLURM + slurm, slurm + NODE), (gres, GRES + gres))
    for first, second in parts:
        configurations.checked(slurm=first, gres=second, cgroup=CGROUP + slurm, plugstack=gres)
