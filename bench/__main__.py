"""Run all benchmarks, or those named."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable

from bench.benchmarks import (
    burst,
    filter_verb,
    gpu_objects,
    outages,
    prices,
    ranking,
    reviews,
    runs,
    scale,
    starts,
    steps,
    throughput,
)
from bench.measurement import results

BENCHMARKS: dict[str, Callable[[], Iterable[results.Result]]] = {
    "ranking": ranking.run,
    "prices": prices.run,
    "runs": runs.run,
    "filter": filter_verb.run,
    "gpu_objects": gpu_objects.run,
    "reviews": reviews.run,
    "throughput": throughput.run,
    "scale": scale.run,
    "starts": starts.run,
    "steps": steps.run,
    "burst": burst.run,
    "outages": outages.run,
}


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        print(f"bench: no benchmark {unknown[0]!r}; choose from {', '.join(BENCHMARKS)}")
        return 2
    for name in names or BENCHMARKS:
        for line in BENCHMARKS[name]():
            print(line.show(name), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
