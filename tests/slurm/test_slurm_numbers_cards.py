"""By which number a real Slurm knows a card, and which one the table of cards has for it."""

from __future__ import annotations

import ast
import pathlib

import pytest

from cluster.slurm import private_slurm
from partage.slurm.checks import machine_facts
from partage.slurm.configuration import config_files, gres
from partage.slurm.node import card_table
from tests import leaving_out
from tests.slurm import real_slurm

pytestmark = leaving_out.needs_root

# Which of the devices the cgroup lets a step open: none has a driver, and that is told later.
OPENED = """
import errno, os, sys
def allowed(path):
    try:
        os.close(os.open(path, os.O_RDWR))
    except OSError as error:
        return error.errno != errno.EPERM
    return True
print((os.environ["SLURM_STEP_GPUS"], [path for path in sys.argv[1:] if allowed(path)]))
"""


@pytest.mark.parametrize(
    ("amounts", "lines"),
    [
        ("gpu:a:1,gpu:b:1", [("a", "0"), ("b", "1")]),
        ("gpu:b:1,gpu:a:1", [("a", "0"), ("b", "1")]),
        ("gpu:a:2", [("a", "3"), ("a", "1")]),
        ("gpu:b:1,gpu:a:2", [("a", "2"), ("b", "3"), ("a", "0")]),
    ],
)
def test_a_number_is_the_same_card_for_both(
    tmp_path: pathlib.Path, amounts: str, lines: list[tuple[str, str]]
) -> None:
    """Each card of the node, by its type and count, against what a step can open."""
    real_slurm.need()
    slurm = private_slurm.PrivateSlurm(tmp_path / "slurm", cards=4, tree=real_slurm.TREE)
    node = slurm.nodes[0]
    files = [f"{slurm.devices}/nvidia{number}" for _, number in lines]
    conf = [
        f"NodeName={node} Name=gpu Type={kind} File={file}"
        for (kind, _), file in zip(lines, files, strict=True)
    ]
    total = 8 * len(files)
    shards = [f"NodeName={node} Name=shard Count={total}"]
    try:
        gres_conf = ["AutoDetect=off", *conf, *shards]
        slurm.start({node: f"{amounts},shard:{total}"}, "gpu,shard", gres_conf)
        own = config_files.read(slurm.folder / "slurm.conf")
        [described] = gres.nodes(own.slurm, own.gres, machine_facts.hosts())
        in_order = card_table.files_in_order(described)
        assert sorted(in_order) == sorted(files)
        for kind in {kind for kind, _ in lines}:
            _compare(slurm, f"gpu:{kind}:1", in_order)
        _compare(slurm, "shard:3", in_order)
        _compare(slurm, f"gpu:{len(files)}", in_order)
    finally:
        slurm.stop()


def _compare(slurm: private_slurm.PrivateSlurm, request: str, in_order: list[str]) -> None:
    every = [str(path) for path in sorted(slurm.devices.iterdir())]
    done = slurm.run("srun", f"--gres={request}", "/usr/bin/python3", "-c", OPENED, *every)
    assert done.returncode == 0, done.stderr
    numbers, opened = ast.literal_eval(done.stdout)
    expected = [in_order[int(number)] for number in numbers.split(",")]
    listed = set(in_order)
    assert sorted(expected) == sorted(path for path in opened if path in listed)
