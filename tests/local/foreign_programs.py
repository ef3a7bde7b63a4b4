"""Programs on the cards of a site that were started without Partage."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

from tests import simulated_machines
from tests.local import sites


class Strangers:
    """They meet the same cards, and know nothing of Partage."""

    def __init__(self, site: sites.Site) -> None:
        state = site.state()  # the simulated machine is kept in there
        plain = {k: v for k, v in site.environment.items() if not k.startswith("PARTAGE_")}
        self._environment = plain | {
            "LD_LIBRARY_PATH": str(simulated_machines.LIBRARIES),
            "SIMCUDA_CARDS": site.environment["PARTAGE_SIMULATE"],
            "SIMCUDA_STATE": str(state.path / "machine"),
        }
        self._started: list[subprocess.Popen[str]] = []

    def using(self, mib: int, card: int = 0) -> subprocess.Popen[str]:
        """One that has so much of a card, its context not counted, when this returns."""
        process = subprocess.Popen(
            [sys.executable, str(sites.PROGRAM), "hold", str(mib)],
            env=self._environment | {"CUDA_VISIBLE_DEVICES": str(card)},
            stdout=subprocess.PIPE,
            text=True,
        )
        self._started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == f"holds {mib} MiB, 0\n"
        return process

    def end(self) -> None:
        """All of them."""
        for process in self._started:
            process.kill()
            process.communicate()


@contextlib.contextmanager
def on(site: sites.Site) -> Iterator[Strangers]:
    """Those of a site, ended in the end."""
    made = Strangers(site)
    try:
        yield made
    finally:
        made.end()
