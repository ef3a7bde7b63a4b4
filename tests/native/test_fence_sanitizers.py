"""The fence under the compiler's own watchdogs: races, bad addresses, undefined behaviour.

A watchdog has to be there before anything else is, which a preloaded library is not; so here the
fence is linked into the program. What finds functions by name stays unwatched: the watchdogs
themselves look up theirs through it before they can watch.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from native import compilers, libraries
from partage.fence.store import limits
from tests import leaving_out
from tests.native import fenced
from tests.native.fenced import CLIENTS, LIBRARIES

UNWATCHED = {"lookup.c", "driver.c"}
WATCHDOGS = {
    "races": ("-fsanitize=thread",),
    "addresses": ("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
}


def watched(folder: Path, source: str, *flags: str) -> Path:
    """A program with the fence in it, all of it watched that can be."""
    headers = [f"-isystem{header}" for header in libraries.header_folders()]
    compiler = compilers.system(*flags)
    parts = sorted((libraries.SOURCES / "fence").glob("*.c"))
    plain = [part for part in parts if part.name in UNWATCHED]
    assert len(plain) == len(UNWATCHED)
    objects = compilers.system().compile(folder, plain, "-pthread")
    rest = [part for part in parts if part not in plain]
    linked = [CLIENTS / source, *rest, *objects, LIBRARIES / "libcuda.so.1"]
    try:
        return compiler.link(folder / "watched", linked, *headers, "-pthread", "-ldl")
    except compilers.CannotBuild as error:
        if "cannot find" not in str(error):
            raise
        leaving_out.leave_out("sanitizers of the compiler", str(error).splitlines()[-1])


@pytest.mark.parametrize("name", WATCHDOGS)
def test_threads_that_use_everything_at_once_do_nothing_forbidden(
    machine: fenced.Machine, tmp_path: Path, name: str
) -> None:
    """Memory of every kind, contexts, launches and views, by six threads near the quota."""
    tenant = machine.tenant(mode=limits.Mode.FIXED, share_millionths=500_000)
    program = watched(tmp_path, "threads.c", *WATCHDOGS[name])
    environment = {"PARTAGE_LIMITS": tenant.environment["PARTAGE_LIMITS"]}
    ran = machine.run(program, "500", environment=environment)
    assert (ran.stdout, ran.stderr) == ("0\n", "")
    used = tenant.usage()
    assert min(used.refused, used.launches) > 0
