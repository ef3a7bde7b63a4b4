"""The fence at work on a simulated card: what `make fence-demo` shows.

Two tenants of one card with 2 GiB each. The first asks past its quota; the second asks for all it
has, and gets it. Then both want all of the card's time, with shares of 20 and 60 percent.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from partage.devices import nvml
from partage.fence.levels import catalog, hook
from partage.fence.store import limits, roots

LIBRARIES = Path(__file__).parents[1] / "src/partage/lib/simulated"
GIB = 1 << 30
SECONDS = 3

PROGRAM = """
import sys, time
from cuda.bindings import driver as cuda

def call(name, *arguments):
    code, *values = getattr(cuda, name)(*arguments)
    if int(code):
        raise SystemExit(f"  {sys.argv[1]}: {name}: {code.name}")
    return values[0] if values else None

call("cuInit", 0)
device = call("cuDeviceGet", 0)
call("cuCtxSetCurrent", call("cuDevicePrimaryCtxRetain", device))
free, total = cuda.cuMemGetInfo()[1:]
gib = 2**30
print(f"  {sys.argv[1]}: sees {total / gib:.1f} GiB, {free / gib:.2f} free", flush=True)
if sys.argv[2] == "memory":
    call("cuMemAlloc", int(float(sys.argv[3]) * 2**30))
    print(f"  {sys.argv[1]}: got {sys.argv[3]} GiB", flush=True)
    sys.exit()
image = b".version 8.0\\n.target sm_80\\n.visible .entry work() { ret; }\\n"
work = call("cuModuleGetFunction", call("cuModuleLoadData", image), b"work")
until, kernels = time.monotonic() + float(sys.argv[3]), 0
while time.monotonic() < until:
    for _ in range(10):
        call("cuLaunchKernel", work, 864, 1, 1, 128, 1, 1, 0, 0, 0, 0)
    call("cuCtxSynchronize")
    kernels += 10
print(f"  {sys.argv[1]}: {kernels / float(sys.argv[3]) / 10:.0f} % of the card's time", flush=True)
"""


def main() -> None:
    """Start over with the simulated driver where the real one would be, and show."""
    if sys.argv[1:]:
        return show(Path(sys.argv[1]))
    with tempfile.TemporaryDirectory() as place:
        simulated = {
            **{name: text for name, text in os.environ.items() if not name.startswith("SIMCUDA_")},
            "LD_LIBRARY_PATH": str(LIBRARIES),
            "SIMCUDA_STATE": f"{place}/machine",
            "SIMCUDA_CARDS": "1x16GiB",
            "SIMCUDA_KERNEL_US": "1000",
        }
        again = [sys.executable, __file__, f"{place}/fences"]
        sys.exit(subprocess.run(again, env=simulated, check=False).returncode)


def show(root: Path) -> None:
    with nvml.Nvml() as driver:
        card = driver.devices()[0].card
    if card is None:
        sys.exit("the simulated card does not say what it is")
    print(f"The card: {card.model}, {card.uuid}")
    fence = hook.Hook(roots.prepare(root), inherited=os.environ)
    environments = {
        f"tenant with {percent} %": fence.apply(
            catalog.Subject(name=f"share-{percent}"), share(card.uuid, percent)
        ).environment
        for percent in (20, 60)
    }
    print("Each tenant has 2 GiB. One asks for 3, the other for 1.7:")
    together(environments, [["memory", "3"], ["memory", "1.7"]])
    print(f"Each wants all of the card's time, for {SECONDS} seconds:")
    together(environments, [["time", str(SECONDS)]] * 2)


def share(uuid: str, percent: int) -> limits.Limits:
    card = limits.CardLimits(
        uuid=uuid,
        memory_bytes=2 * GIB,
        context_bytes=GIB // 4,
        mode=limits.Mode.FIXED,
        share_millionths=percent * limits.MILLIONTHS_PER_PERCENT,
    )
    return limits.Limits((card,))


def together(environments: dict[str, dict[str, str]], jobs: list[list[str]]) -> None:
    running = [
        subprocess.Popen([sys.executable, "-c", PROGRAM, name, *job], env=os.environ | fence)
        for (name, fence), job in zip(environments.items(), jobs, strict=True)
    ]
    for process in running:
        process.wait()


if __name__ == "__main__":
    main()
