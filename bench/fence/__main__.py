"""``python -m bench.fence [PART]...``: run all parts, or those named."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator

import msgspec

from bench.fence import overhead, program_start, reactions, results, shares, simulated_machine
from native import compilers

PARTS: dict[str, Callable[..., Iterator[results.Result]]] = {
    "overhead": overhead.run,
    "start": program_start.run,
    "shares": shares.run,
    "reactions": reactions.run,
}


def main() -> int:
    """Print each line when it is known; as JSON, all of them at the end, and lines on stderr."""
    arguments = _arguments()
    as_json = arguments.output == "json"
    printed = []
    try:
        for result in _measured(arguments):
            print(result.show(), flush=True, file=sys.stderr if as_json else sys.stdout)
            printed.append(result)
    except (compilers.CannotBuild, simulated_machine.ClientFailed) as error:
        print(f"bench-fence: {error}", file=sys.stderr)
        return 1
    if as_json:
        print(msgspec.json.format(msgspec.json.encode(printed)).decode())
    else:
        print(results.summary(printed))
    return 0


def _measured(arguments: argparse.Namespace) -> Iterator[results.Result]:
    for name in arguments.parts or PARTS:
        yield from PARTS[name](quick=arguments.quick, only=arguments.only)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m bench.fence", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--quick", action="store_true", help="shorter runs, and fewer of them")
    parser.add_argument("--only", default="", metavar="TEXT", help="what has this in its name")
    parser.add_argument("-o", "--output", choices=["table", "json"], default="table")
    arguments = parser.parse_args()
    for name in arguments.parts:
        if name not in PARTS:
            parser.error(f"no part {name!r}; choose from {', '.join(PARTS)}")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
