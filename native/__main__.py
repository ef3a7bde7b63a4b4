"""`python -m native [--out DIR] [PART]`: build what changed, and say so in a line each."""

import argparse
import sys
import time
from pathlib import Path

from native import compilers, parts


def main() -> int:
    arguments = _arguments()
    try:
        compiler = compilers.system()
    except compilers.CannotBuild as error:
        print(f"native: {error}", file=sys.stderr)
        return 1
    chosen = [part for part in parts.PARTS if arguments.part in {None, part.name}]
    # All of them, even if the first fails: a broken part should not hide the other's news.
    return max([_build(part, arguments.out, compiler) for part in chosen])


def _build(part: parts.Part, lib: Path, compiler: compilers.Compiler) -> int:
    started = time.monotonic()
    try:
        built = parts.refresh(part, lib, compiler)
    except compilers.LeftOut as error:
        print(f"native: {part.name}: left out: {error}")
        return 0
    except compilers.CannotBuild as error:
        print(f"native: {part.name}: {error}", file=sys.stderr)
        return 1
    took_s = time.monotonic() - started
    print(f"native: {part.name}: {f'built in {took_s:.1f} s' if built else 'up to date'}")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m native", description=__doc__)
    names = [part.name for part in parts.PARTS]
    parser.add_argument("part", nargs="?", choices=names, help="only this part")
    parser.add_argument("--out", type=Path, default=parts.LIB, help="not %(default)s")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
