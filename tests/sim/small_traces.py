"""Traces of a few nodes and pods."""

from __future__ import annotations

import pathlib
import random

NODE_HEADER = "sn,cpu_milli,memory_mib,gpu,model"
POD_HEADER = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec"


def write(path: pathlib.Path, *lines: str) -> pathlib.Path:
    """A file of lines."""
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def cluster(folder: pathlib.Path) -> pathlib.Path:
    """Twenty-six nodes of three kinds: many cards, much CPU, little CPU."""
    rows = [f"big-{i},96000,393216,8,G2" for i in range(10)]
    rows += [f"rich-{i},104000,524288,2,T4" for i in range(8)]
    rows += [f"poor-{i},16000,122880,2,P100" for i in range(8)]
    return write(folder / "nodes.csv", NODE_HEADER, *rows)


def workload(folder: pathlib.Path, *, models: bool = False) -> pathlib.Path:
    """Two hundred pods: shares, whole cards, several cards, and some that want CPU only."""
    source = random.Random(3)
    rows = []
    for i in range(200):
        count, milli = source.choice(
            [(1, 1000)] * 4
            + [(1, 810)] * 2
            + [(1, 470)] * 2
            + [(1, 320), (1, 230), (0, 0), (4, 1000)]
        )
        spec = source.choice(["", "", "T4", "G2|P100"]) if models and count == 1 else ""
        rows.append(f"p{i},{source.choice([4, 8, 12]) * 1000},16384,{count},{milli},{spec}")
    return write(folder / "pods.csv", POD_HEADER, *rows)
