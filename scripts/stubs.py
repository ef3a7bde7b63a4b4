"""Generate the messages of the kubelet's protocols from their descriptions, or check them.

`python scripts/stubs.py` writes what is generated beside the descriptions; `--check` (part of
`make lint`) says whether what lies there is what would be generated. The generator is pinned, so
the two differ only if somebody changed one of them.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc  # type: ignore[import-untyped]

SOURCES = Path(__file__).resolve().parent.parent / "src"
WIRE = SOURCES / "partage" / "kubelet" / "wire"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, only compare")
    check = parser.parse_args().check
    with tempfile.TemporaryDirectory() as folder:
        fresh = generated(Path(folder))
    present = {path.name: path.read_bytes() for path in WIRE.glob("*_pb2.py*")}
    if check:
        stale = sorted(n for n in fresh | present if fresh.get(n) != present.get(n))
        sys.exit("\n".join(f"{n} is stale: run `python scripts/stubs.py`" for n in stale) or 0)
    for name in present.keys() - fresh.keys():
        (WIRE / name).unlink()
    for name, content in fresh.items():
        (WIRE / name).write_bytes(content)


def generated(folder: Path) -> dict[str, bytes]:
    descriptions = [str(path) for path in sorted(WIRE.glob("*.proto"))]
    outputs = [f"--python_out={folder}", f"--pyi_out={folder}"]
    # Paths are taken relative to the root of the imports, and so are unlike anybody else's.
    failed = protoc.main(["protoc", f"--proto_path={SOURCES}", *outputs, *descriptions])
    if failed:
        sys.exit(failed)
    return {path.name: path.read_bytes() for path in folder.rglob("*_pb2.py*")}


if __name__ == "__main__":
    main()
