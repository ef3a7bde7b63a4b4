"""``partage slurm prepare`` on a node whose configuration contradicts itself, or its cards."""

from __future__ import annotations

import pathlib

import pytest

from partage.slurm.checks import machine_facts
from tests.local import sites

GPUS = "Name=gpu Type=t4 File=/dev/zero\nName=gpu Type=t4 File=/dev/null\n"


@pytest.mark.parametrize(
    ("gres", "says"),
    [
        (f"{GPUS}Name=shard Count=0\n", "/dev/zero has no shards; see `partage slurm check`"),
        (f"{GPUS}Name=shard Count=16 File=/dev/zero\n", "/dev/null has no shards"),
        (f"{GPUS}Name=shard Count=33\n", "33 shard do not go evenly over 2 cards"),
        (f"{GPUS}Name=shard Count=-8\n", "gres.conf:3: Count=-8 is not a number"),
        (f"{GPUS}Name=shard Count=32\n", "/dev/zero in gres.conf is no card that the driver knows"),
        ("NodeName=n[1- Name=gpu\n", "gres.conf:1: NodeName: the brackets of 'n[1-' do not match"),
        ("", "gres.conf does not say which device file each card is"),
    ],
)
def test_a_file_that_lies(site: sites.Site, tmp_path: pathlib.Path, gres: str, says: str) -> None:
    """One line that says what is wrong, and nothing is written."""
    folder = tmp_path / "conf"
    folder.mkdir()
    node = machine_facts.hosts()[0]
    (folder / "slurm.conf").write_text(f"NodeName={node} Gres=gpu:t4:2,shard:32\n")
    (folder / "gres.conf").write_text(gres)
    words = ("--root", tmp_path / "root", "--library-folder", tmp_path / "lib")

    done = site.partage("slurm", "prepare", "--conf", folder, *words)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("partage: ")
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "root").exists()


def test_a_folder_without_slurm_conf(site: sites.Site, tmp_path: pathlib.Path) -> None:
    """It is said which file is missing, and how to name another folder."""
    done = site.partage("slurm", "prepare", "--conf", tmp_path)

    assert (done.returncode, done.stdout) == (2, "")
    assert f"there is no file {tmp_path / 'slurm.conf'}; write it, or" in done.stderr


def test_no_shards_in_a_gib(site: sites.Site) -> None:
    """Nor a fraction of one."""
    for number in ("0", "-1", "0.5", "many"):
        done = site.partage("slurm", "gres-conf", "--shards-per-gib", number)

        assert done.returncode == 2
        assert "Invalid value for '--shards-per-gib'" in done.stderr
