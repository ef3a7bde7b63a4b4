"""Traces: what is wrong is said with file, line, column and what to do."""

from __future__ import annotations

import pathlib

import pytest

from partage.core import demands, errors
from partage.sim import traces
from tests.sim.small_traces import NODE_HEADER, POD_HEADER, write


def test_nodes_and_pods_are_read(tmp_path: pathlib.Path) -> None:
    """Every column lands where it belongs; more columns do not disturb."""
    nodes = traces.read_nodes(write(tmp_path / "n.csv", NODE_HEADER, "a,8000,4096,2,T4"))
    pods = traces.read_pods(
        write(
            tmp_path / "p.csv",
            POD_HEADER + ",qos",
            "z,1000,2048,1,470,,LS",
            "b,2000,1024,2,1000,T4|P100,BE",
            "c,500,64,0,0,,LS",
        )
    )

    assert [(n.name, n.free_cpu_milli, n.free_main_mib, len(n.cards)) for n in nodes] == [
        ("a", 8000, 4096, 2)
    ]
    assert nodes[0].cards[1].model == "T4"
    assert [(p.name, p.milli) for p in pods] == [("b", 2000), ("c", 0), ("z", 470)]
    whole, share = pods[0].demand.containers[0].demand, pods[2].demand.containers[0].demand
    assert (whole.exclusive, whole.cards) == (demands.Exclusive.CARD, 2)
    assert whole.models == ("T4", "P100")
    assert share.memory_mib == 470


def test_pods_need_no_model_column(tmp_path: pathlib.Path) -> None:
    """The files of several cards have the first five columns only."""
    header = POD_HEADER.removesuffix(",gpu_spec")

    assert len(traces.read_pods(write(tmp_path / "p.csv", header, "a,1,1,1,1000"))) == 1


@pytest.mark.parametrize(
    ("row", "column", "problem"),
    [
        ("a,-1,1,1,T4", "cpu_milli", "'-1' is not valid"),
        ("a,1.5,1,1,T4", "cpu_milli", "'1.5' is not valid"),
        ("a,1,x,1,T4", "memory_mib", "'x' is not valid"),
        ("a,1,1,0,T4", "gpu", "node a has no cards"),
        ("a,1,1,65,T4", "gpu", "'65' is not valid"),
        ("a,1,1,,T4", "gpu", "'' is not valid"),
        (",1,1,1,T4", "sn", "is empty"),
        ("ok,1,1,1,T4", "sn", "'ok' is listed twice"),
        ("a,1,1", "sn", "a wrong number of cells"),
        ("a,1,1,1,T4,extra", "sn", "a wrong number of cells"),
        ("a,99999999999999999999,1,1,T4", "cpu_milli", "is not valid"),
    ],
)
def test_a_wrong_node_is_named(tmp_path: pathlib.Path, row: str, column: str, problem: str) -> None:
    """The message names file, line and column."""
    path = write(tmp_path / "n.csv", NODE_HEADER, "ok,1,1,1,T4", row)

    with pytest.raises(errors.TraceError) as caught:
        traces.read_nodes(path)
    assert str(caught.value).startswith(f"{path}, line 3, column {column}: ")
    assert problem in str(caught.value)
    assert caught.value.instead


@pytest.mark.parametrize(
    ("row", "column"),
    [
        ("a,1,1,-1,1000,", "num_gpu"),
        ("a,1,1,1,1001,", "gpu_milli"),
        ("a,1,1,1,0,", "gpu_milli"),
        ("a,1,1,2,500,", "gpu_milli"),
        ("a,1,1,1,0.5,", "gpu_milli"),
    ],
)
def test_a_wrong_pod_is_named(tmp_path: pathlib.Path, row: str, column: str) -> None:
    """Negative, fractional and impossible amounts are refused."""
    path = write(tmp_path / "p.csv", POD_HEADER, row)

    with pytest.raises(errors.TraceError, match=f"line 2, column {column}: "):
        traces.read_pods(path)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "missing column sn"),
        (b"sn,gpu\na,1\n", "missing column cpu_milli, memory_mib, model"),
        (NODE_HEADER.encode() + b"\n", "the file has no nodes"),
        (b"\x89PNG\r\n\x1a\n", "utf-8"),
        (NODE_HEADER.encode() + b"\na,1,1,1,\x00\n", ""),
    ],
)
def test_a_file_that_is_no_trace_is_refused(
    tmp_path: pathlib.Path, content: bytes, problem: str
) -> None:
    """Empty, headless, binary: one error, no traceback."""
    path = tmp_path / "n.csv"
    path.write_bytes(content)
    if not problem:
        assert traces.read_nodes(path)[0].cards[0].model == "\x00"
        return

    with pytest.raises(errors.TraceError, match=problem):
        traces.read_nodes(path)


def test_a_byte_order_mark_is_no_part_of_the_first_column(tmp_path: pathlib.Path) -> None:
    """Spreadsheets write one."""
    path = tmp_path / "n.csv"
    path.write_bytes(b"\xef\xbb\xbf" + NODE_HEADER.encode() + b"\na,1,1,1,T4\n")

    assert traces.read_nodes(path)[0].name == "a"


def test_a_missing_file_and_a_folder_are_refused(tmp_path: pathlib.Path) -> None:
    """The system's own words are passed on."""
    for path in (tmp_path / "nothing.csv", tmp_path):
        with pytest.raises(errors.TraceError, match=r"name a readable CSV file"):
            traces.read_nodes(path)


def test_nodes_without_cards_can_be_left_out(tmp_path: pathlib.Path) -> None:
    """The published experiment leaves them out, too."""
    path = write(tmp_path / "n.csv", NODE_HEADER, "cpu,1,1,0,", "gpu,1,1,1,T4")

    assert [node.name for node in traces.read_nodes(path, skip_cpu_nodes=True)] == ["gpu"]


def test_a_workload_without_cards_is_refused(tmp_path: pathlib.Path) -> None:
    """There would be nothing to measure, and growing it to a demand would never end."""
    path = write(tmp_path / "p.csv", POD_HEADER, "a,1,1,0,0,")

    with pytest.raises(errors.TraceError, match="no pod requests a card"):
        traces.read_pods(path)
