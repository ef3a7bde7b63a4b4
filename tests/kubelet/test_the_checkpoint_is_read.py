"""The kubelet's checkpoint tells who holds what; what is odd about it is an error, not "nobody"."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from partage.kubelet import checkpoint, errors
from partage.kubelet.checkpoint import Holding

MEMORY, CORES = "aliyun.com/gpu-mem", "aliyun.com/gpu-core"
IDS = frozenset({"a", "b"})


def written(path: Path, entries: Any, registered: Any = None) -> Path:
    """A file as the kubelet writes it."""
    data = {"PodDeviceEntries": entries, "RegisteredDevices": registered}
    file = path / checkpoint.NAME
    file.write_text(json.dumps({"Data": data, "Checksum": 12345678901234567890}))
    return file


def entry(ids: Any, *, pod: str = "uid-1", container: str = "main") -> dict[str, Any]:
    """One entry, with an answer to Allocate that is to be skipped."""
    return {
        "PodUID": pod,
        "ContainerName": container,
        "ResourceName": MEMORY,
        "DeviceIDs": ids,
        "AllocResp": "CgQKAWESAWI=",
    }


def test_holdings_and_registered_ids_are_read(tmp_path: Path) -> None:
    """By NUMA node, as a plain list, null, and from null lists."""
    entries = [
        entry({"-1": ["a"], "0": ["b"], "1": None}),
        entry(["a", "b"], container="second"),
        None,
        entry(None, pod="uid-2"),
    ]
    read = checkpoint.read(written(tmp_path, entries, {MEMORY: ["a", "b", "c"], CORES: None}))
    assert read.holdings == (
        Holding("uid-1", "main", MEMORY, IDS),
        Holding("uid-1", "second", MEMORY, IDS),
        Holding("uid-2", "main", MEMORY, frozenset()),
    )
    assert read.registered == {MEMORY: frozenset({"a", "b", "c"}), CORES: frozenset()}


def test_an_empty_record_is_no_error(tmp_path: Path) -> None:
    """A kubelet writes nulls before it knows a plugin."""
    assert checkpoint.read(written(tmp_path, None)) == checkpoint.Checkpoint((), {})


def test_a_missing_file_differs_from_a_damaged_one(tmp_path: Path) -> None:
    """The first cures itself; both say what to do."""
    with pytest.raises(errors.Absent, match="does not exist; wait: the kubelet writes it when"):
        checkpoint.read(tmp_path / checkpoint.NAME)
    with pytest.raises(errors.BadCheckpoint, match=r"cannot be read .Is a directory."):
        checkpoint.read(tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b"{}",
        b'{"Data": null}',
        b'{"Data": {}}',
        b'{"Data": {"PodDeviceEntries": [{}], "RegisteredDevices": {}}}',
        b'{"Data": {"PodDeviceEntries": [], "RegisteredDevices": {"a": "b"}}}',
        b"[" * 100_000,
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, content: bytes) -> None:
    """With the place of the trouble, where there is one."""
    file = tmp_path / checkpoint.NAME
    file.write_bytes(content)
    with pytest.raises(errors.BadCheckpoint, match="is not a valid checkpoint"):
        checkpoint.read(file)


def test_a_file_without_end_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is a bound, to the byte."""
    file = written(tmp_path, None)
    monkeypatch.setattr(checkpoint, "LARGEST_BYTES", file.stat().st_size)
    checkpoint.read(file)
    monkeypatch.setattr(checkpoint, "LARGEST_BYTES", file.stat().st_size - 1)
    with pytest.raises(errors.BadCheckpoint, match="is larger than"):
        checkpoint.read(file)


NAMES = st.text(max_size=8)
HELD = st.lists(st.tuples(NAMES, NAMES, st.dictionaries(NAMES, st.lists(NAMES, max_size=4))))


@hypothesis.given(held=HELD, registered=st.dictionaries(NAMES, st.sets(NAMES)))
def test_whatever_was_written_is_read(
    tmp_path_factory: pytest.TempPathFactory,
    held: list[tuple[str, str, dict[str, list[str]]]],
    registered: dict[str, set[str]],
) -> None:
    """Any names, any number of NUMA nodes."""
    entries = [entry(ids, pod=pod, container=container) for pod, container, ids in held]
    names = {name: sorted(ids) for name, ids in registered.items()}
    read = checkpoint.read(written(tmp_path_factory.mktemp("c"), entries, names))
    assert read.registered == registered
    assert [(h.pod_uid, h.container, set(h.ids)) for h in read.holdings] == [
        (pod, container, set().union(*by_node.values())) for pod, container, by_node in held
    ]


def test_it_is_read_whole_while_it_is_replaced(tmp_path: Path) -> None:
    """The kubelet renames: a reader sees one state or the next."""
    file = written(tmp_path, [entry(["0"])], {MEMORY: ["0"]})
    done = threading.Event()

    def replace() -> None:
        for number in range(1, 500):
            ids = [str(number)] * (number % 50 + 1)
            aside = tmp_path / "aside"
            aside.mkdir(exist_ok=True)
            written(aside, [entry(ids)], {MEMORY: ids}).replace(file)
        done.set()

    writer = threading.Thread(target=replace)
    writer.start()
    seen: set[str] = set()
    while not done.is_set():
        read = checkpoint.read(file)
        assert read.holdings[0].ids == read.registered[MEMORY]
        seen |= read.registered[MEMORY]
    writer.join()
    assert len(seen) > 1
