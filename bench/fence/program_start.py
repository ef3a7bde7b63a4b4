"""Program start: what the preloaded library adds to a program that has nothing to do with a card.

``/bin/true`` is started and waited for, in turns without a preload, with an empty library, and with
ours; the empty one shows what the loader takes for any library. The difference of the medians is
within the noise if it is smaller than what the medians of the direct starts differ by among
themselves, a hundred at a time.
"""

from __future__ import annotations

import statistics
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from bench.fence import results, simulated_machine
from native import compilers
from partage.fence.library import libpartage

PART = "start"
PROGRAM = "/bin/true"

_HUNDRED = 100


class Starts(msgspec.Struct, frozen=True):
    """How long each start took, in microseconds."""

    direct_us: list[float]
    empty_us: list[float]
    fenced_us: list[float]


def run(*, quick: bool, only: str = "") -> Iterator[results.Result]:
    """One line."""
    if only not in PROGRAM:
        return
    with tempfile.TemporaryDirectory(prefix="partage-bench-") as folder:
        starts = _measured(Path(folder), 200 if quick else 1000)
    direct, empty, fenced = (
        statistics.median(times) for times in (starts.direct_us, starts.empty_us, starts.fenced_us)
    )
    noise_us = noise(starts.direct_us)
    quarters = statistics.quantiles(starts.direct_us, n=4)
    values: dict[str, float | None] = {
        "direct_us": direct,
        "empty_library_us": empty,
        "fenced_us": fenced,
        "more_us": fenced - direct,
        "noise_us": noise_us,
        "quartile_1_us": quarters[0],
        "quartile_3_us": quarters[2],
    }
    yield results.Result(
        part=PART,
        what=f"{len(starts.direct_us)} x {PROGRAM}",
        said=_SAID.format_map(values),
        values=values,
        aim=f"within noise, {noise_us:.1f} us",
        met=fenced - direct <= noise_us,
    )


_SAID = (
    "{fenced_us:.1f} us, direct {direct_us:.1f}, {more_us:+.1f} us (an empty library"
    " {empty_library_us:.1f}; half of the direct ones {quartile_1_us:.0f}–{quartile_3_us:.0f})"
)


def noise(times: Sequence[float]) -> float:
    """What the medians of a hundred starts each differ by, at most."""
    medians = [
        statistics.median(times[first : first + _HUNDRED])
        for first in range(0, len(times) - _HUNDRED + 1, _HUNDRED)
    ]
    return max(medians) - min(medians)


def _measured(folder: Path, count: int) -> Starts:
    client = simulated_machine.client_program(folder)
    libraries = (_empty_library(folder), libpartage.find().path)
    line = [client, simulated_machine.measured_core(), "start", count, PROGRAM, *libraries]
    environment = {"LD_LIBRARY_PATH": str(simulated_machine.SIMULATED)}
    done = subprocess.run([*map(str, line)], env=environment, stdout=subprocess.PIPE, check=True)
    rows = [msgspec.json.decode(row, type=list[int]) for row in done.stdout.splitlines()]
    return Starts(*([ns / 1000 for ns in column] for column in zip(*rows, strict=True)))


def _empty_library(folder: Path) -> Path:
    source = folder / "empty.c"
    source.write_text("")
    return compilers.system().link(folder / "empty.so", [source], "-shared")
