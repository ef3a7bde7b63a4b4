"""A CDI specification is there whole or not at all, and says for whom it was written."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import msgspec
import pytest
from hypothesis import strategies as st

from partage.agent.containers import cdi
from partage.core import errors

WORDS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=8)
ASKED = st.tuples(WORDS, st.frozensets(WORDS))
NAME = cdi.device("aliyun.com/gpu-mem", ["p0", "p1"])


def started(device: str = NAME, **more: str) -> cdi.Started:
    """For whom a specification is."""
    fields = {"uid": "uid-1", "container": "main", "resource": "x/y", "fence": "hook", **more}
    return cdi.Started(device=device, **fields)


@hypothesis.given(ASKED, ASKED, st.randoms())
def test_a_name_depends_on_resource_and_set_alone(
    one: tuple[str, frozenset[str]], other: tuple[str, frozenset[str]], chance: Any
) -> None:
    """Two calls with the same IDs, in any order, mean one device; any other set means another."""
    shuffled = [*one[1]]
    chance.shuffle(shuffled)
    assert cdi.device(one[0], shuffled) == cdi.device(*one)
    assert (cdi.device(*one) == cdi.device(*other)) == (one == other)


def test_names_are_what_runtimes_take() -> None:
    """Vendor, class and a device of letters and digits; kubelets remember it over upgrades."""
    assert cdi.qualified(NAME) == f"partage.dev/share={NAME}"
    assert NAME.isascii()
    assert NAME.isalnum()
    assert NAME == "d401a1ef05bd1ffb86d67e664013aa1c"


FULL = cdi.Edits(
    env=("A=1",),
    device_nodes=(cdi.DeviceNode(path="/dev/nvidia0", host_path="/dev/x", major=195, gid=0),),
    mounts=(cdi.Mount(host_path="/a", container_path="/b", options=("ro", "bind")),),
    hooks=({"hookName": "createContainer", "path": "/usr/bin/nvidia-cdi-hook", "args": ["x"]},),
)


def test_a_specification_is_what_cdi_asks_for(tmp_path: Path) -> None:
    """Names as the specification has them, whom it is for, and nothing that is null or unset."""
    cdi.write(tmp_path, started(tenant="uid-1.main"), FULL)

    [file] = tmp_path.iterdir()
    assert file.name == f"partage-{NAME}.json"
    assert json.loads(file.read_bytes()) == {
        "cdiVersion": "0.6.0",
        "kind": "partage.dev/share",
        "devices": [
            {
                "name": NAME,
                "annotations": {
                    "partage.dev/uid": "uid-1",
                    "partage.dev/container": "main",
                    "partage.dev/resource": "x/y",
                    "partage.dev/fence": "hook",
                    "partage.dev/tenant": "uid-1.main",
                    "partage.dev/device": NAME,
                    "partage.dev/version": "1",
                },
                "containerEdits": {
                    "env": ["A=1"],
                    "deviceNodes": [
                        {"path": "/dev/nvidia0", "hostPath": "/dev/x", "major": 195, "gid": 0}
                    ],
                    "mounts": [
                        {"hostPath": "/a", "containerPath": "/b", "options": ["ro", "bind"]}
                    ],
                    "hooks": [
                        {
                            "hookName": "createContainer",
                            "path": "/usr/bin/nvidia-cdi-hook",
                            "args": ["x"],
                        }
                    ],
                },
            }
        ],
    }


def test_further_groups_need_a_newer_version(tmp_path: Path) -> None:
    """A runtime refuses fields that its version does not have."""
    cdi.write(tmp_path, started(), cdi.Edits(additional_gids=(44,)))
    spec = json.loads((tmp_path / f"partage-{NAME}.json").read_bytes())
    assert spec["cdiVersion"] == "0.7.0"
    assert spec["devices"][0]["containerEdits"] == {"additionalGids": [44]}


def test_edits_add_up_in_order() -> None:
    """Each kind by itself."""
    first = cdi.Edits(env=("A",), hooks=({"a": 1},), additional_gids=(1,))
    two = cdi.Edits(env=("B",), mounts=(cdi.Mount(host_path="/", container_path="/x"),))
    assert first + two + FULL == cdi.Edits(
        env=("A", "B", "A=1"),
        device_nodes=FULL.device_nodes,
        mounts=(*two.mounts, *FULL.mounts),
        hooks=({"a": 1}, *FULL.hooks),
        additional_gids=(1,),
    )


def test_a_reader_never_sees_a_half_file(tmp_path: Path) -> None:
    """While one is written again and again, whoever lists the folder finds whole ones only."""
    large = tuple(f"NAME_{number}={'x' * 1000}" for number in range(300))
    done = threading.Event()
    seen: list[int] = []
    broken: list[str] = []

    def look() -> None:
        while not done.is_set():
            for path in tmp_path.glob("*.json"):
                content = path.read_bytes()
                seen.append(len(content))
                try:
                    json.loads(content)
                except ValueError:
                    broken.append(f"{path.name}: {len(content)} bytes")

    reader = threading.Thread(target=look)
    reader.start()
    for number in range(150):
        cdi.write(tmp_path, started(), cdi.Edits(env=large[: 1 + 299 * (number % 2)]))
    done.set()
    reader.join()

    assert broken == []
    assert len(set(seen)) == 2  # it saw the short one and the long one
    assert [path.name for path in tmp_path.iterdir()] == [f"partage-{NAME}.json"]


STARTED = st.builds(
    cdi.Started,
    uid=WORDS,
    container=WORDS,
    resource=WORDS,
    fence=WORDS,
    tenant=WORDS | st.just(""),
    device=st.frozensets(WORDS).map(lambda ids: cdi.device("x/y", ids)),
)


@hypothesis.settings(
    deadline=None,  # disks take their time
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)
@hypothesis.given(
    st.lists(STARTED, max_size=4, unique_by=lambda started: started.device),
    st.lists(STARTED, max_size=2),
)
def test_all_that_was_written_is_read_back(
    tmp_path: Path, these: list[cdi.Started], later: list[cdi.Started]
) -> None:
    """It is the agent's only memory; of a name that was written twice, the last."""
    for path in tmp_path.iterdir():
        path.unlink()
    for specification in (*these, *later):
        cdi.write(tmp_path, specification, FULL)

    specifications = {specification.device: specification for specification in (*these, *later)}
    assert {
        specification.device: specification for specification in cdi.everything(tmp_path)
    } == specifications


def nested(depth: int) -> bytes:
    """JSON that is nested deeper than it can be read."""
    return b'{"hooks":[{"a":' + b"[" * depth + b"]" * depth + b"}]}"


def strange(folder: Path) -> Iterator[Path]:
    """Files that are none of ours, or no longer."""
    name = "a" * 32
    good = _spec(name)
    contents = {
        "nvidia.json": good,
        "nvidia.yaml": good,
        f".partage-{name}.7": good,
        "partage-empty.json": b"",
        "partage-half.json": good[:-20],
        "partage-binary.json": b"\xff\xfe",
        "partage-list.json": b"[]",
        "partage-renamed.json": good,
        "partage-nobody.json": _spec("nobody", annotations={}),
        "partage-two.json": _spec("two", more=1),
        "partage-large.json": _spec("large", text="x" * (1 << 20)),
        "partage-deep.json": _spec("deep").replace(b'{"env":[]}', nested(200_000)),
    }
    for file, content in contents.items():
        (folder / file).write_bytes(content)
    (folder / "partage-folder.json").mkdir()
    (folder / "partage-lost.json").symlink_to(folder / "nowhere")
    yield from folder.iterdir()


def _spec(
    name: str, annotations: dict[str, str] | None = None, more: int = 0, text: str = ""
) -> bytes:
    defaults = {f"partage.dev/{key}": "x" for key in ("uid", "container", "resource", "fence")}
    device = {
        "name": name,
        "annotations": defaults if annotations is None else annotations,
        "containerEdits": {"env": [text] if text else []},
    }
    devices = [device] * (1 + more)
    return msgspec.json.encode({"cdiVersion": "0.6.0", "kind": cdi.KIND, "devices": devices})


def test_strange_files_are_left_out_and_left_alone(tmp_path: Path) -> None:
    """Only what says for whom it is, under its own name, counts."""
    before = sorted(strange(tmp_path))
    cdi.write(tmp_path, started(), FULL)

    assert list(cdi.everything(tmp_path)) == [started()]
    assert set(before) <= set(tmp_path.iterdir())


def test_a_folder_that_is_not_there_has_nothing(tmp_path: Path) -> None:
    """As on a node where nothing was ever started; writing makes it."""
    folder = tmp_path / "run" / "cdi"
    assert list(cdi.everything(folder)) == []
    cdi.remove(folder, NAME)
    cdi.write(folder, started(), FULL)
    assert list(cdi.everything(folder)) == [started()]


def test_what_was_removed_can_be_removed_again(tmp_path: Path) -> None:
    """Allocate removes whatever may be there; others stay."""
    other = started(cdi.device("x/y", ["p7"]))
    for specification in (started(), other):
        cdi.write(tmp_path, specification, FULL)
    cdi.remove(tmp_path, NAME)
    cdi.remove(tmp_path, NAME)
    assert list(cdi.everything(tmp_path)) == [other]


def test_a_folder_that_cannot_be_written_to_is_explained(tmp_path: Path) -> None:
    """It is what the pod's owner reads in its events."""
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.FenceError, match=r"cannot be written to .*/file/cdi .*; check that"):
        cdi.write(tmp_path / "file" / "cdi", started(), FULL)


def _versioned(folder: Path, version: str | None) -> None:
    """A specification, as an agent of another version would have written it."""
    cdi.write(folder, started(tenant="uid-1.main", grant="{}"), FULL)
    [file] = folder.iterdir()
    spec = json.loads(file.read_bytes())
    annotations = spec["devices"][0]["annotations"]
    del annotations["partage.dev/version"]
    if version is not None:
        annotations |= {"partage.dev/version": version, "partage.dev/fence": '{"level": 3}'}
    file.write_text(json.dumps(spec))


def test_what_a_later_version_wrote_is_said_and_counts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What all versions have is read, and nothing else is believed."""
    _versioned(tmp_path, "2")

    assert [*cdi.everything(tmp_path)] == [
        cdi.Started(uid="uid-1", container="main", tenant="uid-1.main", device=NAME)
    ]
    assert "its version is '2', but only version 1 is supported: pod uid-1 counts" in caplog.text
    assert "upgrade Partage" in caplog.text


def test_what_was_written_before_there_were_versions_is_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Containers that run were started by the agent before this one."""
    _versioned(tmp_path, None)

    assert [*cdi.everything(tmp_path)] == [started(tenant="uid-1.main", grant="{}")]
    assert caplog.text == ""
