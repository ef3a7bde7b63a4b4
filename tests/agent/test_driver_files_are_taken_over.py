"""What NVIDIA's CDI specification says of a card is done for that card, and for no other."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from partage.agent.containers import cdi, driver_files
from partage.core import cards, errors
from tests.agent import agent_node

CARDS = agent_node.facts(16384, 16384, 16384).node.cards


def hook(*arguments: str) -> dict[str, Any]:
    """As nvidia-ctk writes them."""
    path = "/usr/bin/nvidia-cdi-hook"
    return {"hookName": "createContainer", "path": path, "args": ["nvidia-cdi-hook", *arguments]}


def spec(*names: str, library: str = "libcuda.so.1", kind: str = "nvidia.com/gpu") -> Any:
    """What ``nvidia-ctk cdi generate`` writes, much shortened; a device for each name."""
    return {
        "cdiVersion": "0.5.0",
        "kind": kind,
        "devices": [
            {
                "name": name,
                "containerEdits": {
                    "deviceNodes": [{"path": f"/dev/nvidia-{name}", "major": 195, "fileMode": 438}],
                    "hooks": [hook("chmod", name)],
                },
            }
            for name in names
        ],
        "containerEdits": {
            "env": ["NVIDIA_VISIBLE_DEVICES=void", "NVIDIA_CTK_LIBCUDA_DIR=/usr/lib64"],
            "deviceNodes": [{"path": "/dev/nvidiactl"}],
            "hooks": [hook("update-ldcache")],
            "mounts": [
                {
                    "hostPath": f"/usr/lib64/{library}",
                    "containerPath": f"/usr/lib64/{library}",
                    "options": ["ro", "nosuid", "nodev", "bind"],
                }
            ],
        },
    }


def written(path: Path, content: Any) -> Path:
    """A file, as its ending says."""
    text = json.dumps(content) if path.suffix == ".json" else yaml.safe_dump(content)
    path.write_text(text)
    return path


def paths(edits: cdi.Edits) -> list[str]:
    """The device nodes."""
    return [node.path for node in edits.device_nodes]


@pytest.mark.parametrize("name", ["nvidia.yaml", "nvidia.yml", "nvidia.json"])
@pytest.mark.parametrize("by", ["uuid", "index"])
def test_a_card_is_found_by_its_uuid_or_index(tmp_path: Path, name: str, by: str) -> None:
    """In every form that nvidia-ctk writes; ``all`` is never what one card means."""
    names = [card.uuid if by == "uuid" else str(card.index) for card in CARDS]
    written(tmp_path / name, spec("all", *names))
    files = driver_files.DriverFiles([tmp_path])

    assert files.present()
    edits = files.edits([CARDS[1]])
    assert edits == cdi.Edits(
        env=("NVIDIA_CTK_LIBCUDA_DIR=/usr/lib64",),
        device_nodes=(
            cdi.DeviceNode(path="/dev/nvidiactl"),
            cdi.DeviceNode(path=f"/dev/nvidia-{names[1]}", major=195, file_mode=438),
        ),
        mounts=(
            cdi.Mount(
                host_path="/usr/lib64/libcuda.so.1",
                container_path="/usr/lib64/libcuda.so.1",
                options=("ro", "nosuid", "nodev", "bind"),
            ),
        ),
        hooks=(hook("update-ldcache"), hook("chmod", names[1])),
    )


def test_what_cards_have_in_common_comes_once(tmp_path: Path) -> None:
    """And each card's own beside it."""
    written(tmp_path / "nvidia.yaml", spec("0", "1", "2"))
    edits = driver_files.DriverFiles([tmp_path]).edits([CARDS[2], CARDS[0]])
    assert paths(edits) == ["/dev/nvidiactl", "/dev/nvidia-2", "/dev/nvidia-0"]
    assert len(edits.mounts) == 1


def test_cards_of_two_files_bring_what_both_have_in_common(tmp_path: Path) -> None:
    """As a runtime does that is asked for a device of each."""
    written(tmp_path / "a.yaml", spec("0", library="libcuda.so.1"))
    written(tmp_path / "b.yaml", spec("1", library="libnvidia-ml.so.1"))
    edits = driver_files.DriverFiles([tmp_path]).edits(CARDS[:2])
    assert [Path(mount.host_path).name for mount in edits.mounts] == [
        "libcuda.so.1",
        "libnvidia-ml.so.1",
    ]
    assert paths(edits)[-2:] == ["/dev/nvidia-0", "/dev/nvidia-1"]


def test_a_uuid_is_believed_before_an_index(tmp_path: Path) -> None:
    """Indexes change when a card is swapped, and an old file knows the old ones."""
    written(tmp_path / "a.yaml", spec("0", library="old"))
    written(tmp_path / "b.yaml", spec(CARDS[0].uuid, library="new"))
    edits = driver_files.DriverFiles([tmp_path]).edits([CARDS[0]])
    assert [mount.host_path for mount in edits.mounts] == ["/usr/lib64/new"]


def test_the_variables_of_others_that_choose_cards_are_dropped(tmp_path: Path) -> None:
    """Theirs keeps NVIDIA's runtime out; only the grant says which cards there are."""
    content = spec("0")
    content["devices"][0]["containerEdits"]["env"] = ["NVIDIA_VISIBLE_DEVICES=0", "KEPT=1"]
    written(tmp_path / "nvidia.yaml", content)
    edits = driver_files.DriverFiles([tmp_path]).edits([CARDS[0]])
    assert edits.env == ("NVIDIA_CTK_LIBCUDA_DIR=/usr/lib64", "KEPT=1")


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    """A driver was updated under the agent; and a file that did not change is read once."""
    file = written(tmp_path / "nvidia.yaml", spec("0", library="old"))
    files = driver_files.DriverFiles([tmp_path])
    assert files.edits([CARDS[0]]).mounts[0].host_path == "/usr/lib64/old"

    stamp = file.stat()
    file.write_bytes(file.read_bytes().replace(b"old", b"new"))
    os.utime(file, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert files.edits([CARDS[0]]).mounts[0].host_path == "/usr/lib64/old"
    os.utime(file, ns=(stamp.st_atime_ns, stamp.st_mtime_ns + 1))
    assert files.edits([CARDS[0]]).mounts[0].host_path == "/usr/lib64/new"


def test_a_replaced_file_is_read_again_though_it_is_as_old(tmp_path: Path) -> None:
    """Packages carry the times at which they were built."""
    file = written(tmp_path / "nvidia.yaml", spec("0", library="old"))
    files = driver_files.DriverFiles([tmp_path])
    assert files.present()
    other = written(tmp_path / "other.tmp.yaml.new", spec("0", library="new"))
    os.utime(other, ns=(file.stat().st_atime_ns, file.stat().st_mtime_ns))
    other.rename(file)
    assert files.edits([CARDS[0]]).mounts[0].host_path == "/usr/lib64/new"


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff\xfe", b"- a", b"devices: 7\nkind: nvidia.com/gpu", b"[" * 3_000],
    ids=["empty", "half", "binary", "list", "other", "deep"],
)
@pytest.mark.parametrize("ending", ["yaml", "json"])
def test_a_broken_file_does_not_hide_the_others(
    tmp_path: Path, content: bytes, ending: str
) -> None:
    """Files of others lie in the same folder; what they mean is not our matter."""
    (tmp_path / f"a.{ending}").write_bytes(content)
    written(tmp_path / "other.yaml", spec("0", library="other", kind="example.com/net"))
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "notes.txt").write_text("kind: nvidia.com/gpu")
    assert not driver_files.DriverFiles([tmp_path]).present()

    written(tmp_path / "nvidia.yaml", spec("0"))
    edits = driver_files.DriverFiles([tmp_path]).edits([CARDS[0]])
    assert paths(edits) == ["/dev/nvidiactl", "/dev/nvidia-0"]


def test_a_missing_card_is_an_error_with_a_next_step(tmp_path: Path) -> None:
    """The file is older than the card."""
    written(tmp_path / "nvidia.yaml", spec("all", "0"))
    files = driver_files.DriverFiles([tmp_path, tmp_path / "nowhere"])
    with pytest.raises(errors.FenceError) as caught:
        files.edits([CARDS[0], CARDS[1]])
    assert f"{tmp_path}, {tmp_path / 'nowhere'}" in caught.value.what
    assert caught.value.what.endswith(f"does not have card {CARDS[1].uuid}")
    assert caught.value.instead.startswith("run `nvidia-ctk cdi generate` again on the node")


def test_without_a_folder_there_is_none(tmp_path: Path) -> None:
    """NVIDIA's runtime brings the files then."""
    assert not driver_files.DriverFiles([tmp_path / "nowhere"]).present()


def test_the_first_folder_comes_first(tmp_path: Path) -> None:
    """As the administrator listed them."""
    folders = [tmp_path / "b", tmp_path / "a"]
    for folder in folders:
        folder.mkdir()
        written(folder / "nvidia.yaml", spec("0", library=folder.name))
    edits = driver_files.DriverFiles(folders).edits([cards.Card(uuid="x", index=0, memory_mib=1)])
    assert edits.mounts[0].host_path == "/usr/lib64/b"


def test_a_specification_that_comes_later_is_found(tmp_path: Path) -> None:
    """Until then NVIDIA's runtime has to bring the files; unless that is ruled out."""
    files = driver_files.DriverFiles([tmp_path], optional=True)
    assert files.edits([CARDS[1]]) == cdi.Edits()
    with pytest.raises(errors.FenceError, match="does not have card"):
        driver_files.DriverFiles([tmp_path]).edits([CARDS[1]])
    written(tmp_path / "nvidia.yaml", spec(CARDS[1].uuid))
    assert f"/dev/nvidia-{CARDS[1].uuid}" in paths(files.edits([CARDS[1]]))


def test_our_own_specifications_are_not_read(tmp_path: Path) -> None:
    """They are in the same folder, and new ones come with every pod."""
    written(tmp_path / "nvidia.json", spec(CARDS[0].uuid))
    for number in range(100):
        written(tmp_path / f"partage-{number}.json", spec(CARDS[1].uuid))
    files = driver_files.DriverFiles([tmp_path])
    files.edits([CARDS[0]])
    assert list(files._read) == [tmp_path / "nvidia.json"]


def test_an_index_that_means_another_card_by_now_is_not_believed(tmp_path: Path) -> None:
    """The specification was written when a card was there that is gone; the device file tells."""
    made = spec("0", "1")
    for number, device in enumerate(made["devices"]):
        device["containerEdits"]["deviceNodes"] = [{"path": f"/dev/nvidia{number}"}]
    written(tmp_path / "nvidia.json", made)
    files = driver_files.DriverFiles([tmp_path])
    card = msgspec.structs.replace(CARDS[0], minor=0)
    moved = msgspec.structs.replace(CARDS[0], minor=1)
    assert "/dev/nvidia0" in paths(files.edits([card]))
    with pytest.raises(errors.FenceError, match="cdi generate"):
        files.edits([moved])
