"""Run all benchmarks, or those named."""

from __future__ import annotations

import sys
from collections.abc import Callable

from bench import deciding, pricing
from bench.measuring import Line

BENCHMARKS: dict[str, Callable[[], list[Line]]] = {
    "deciding": deciding.run,
    "pricing": pricing.run,
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


sys.exit(main(sys.argv[1:]))
