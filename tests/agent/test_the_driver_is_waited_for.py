"""A node may get its driver after its agent; and it is not asked more often than need be."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from partage.agent import driver
from partage.core import errors
from partage.devices import nvml
from tests import simulated
from tests.agent import making

Answer = errors.DeviceError | tuple[nvml.Device, ...]
ABSENT = errors.DeviceError("library-not-found", "NVML: not found", instead="install it")
MISMATCH = errors.DeviceError("lib-rm-version-mismatch", "NVML: other version", instead="reboot")
LOST = nvml.Device(index=0, problem="lost")


class Driver:
    """Answers one after the other; the last again and again."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)

    def __call__(self) -> tuple[str, tuple[nvml.Device, ...]]:
        """The next."""
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, errors.DeviceError):
            raise answer
        return "615.71", answer


async def test_each_reason_to_wait_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Until there is a card that can be used."""
    monkeypatch.setattr(driver, "_AGAIN_S", 0.001)
    answers: list[Answer] = [ABSENT] * 5 + [MISMATCH] * 3 + [(), (LOST,), (LOST,)]
    asked = Driver(*answers, (LOST, making.device(1)))
    monkeypatch.setattr(driver, "_asked", asked)
    assert await asyncio.wait_for(driver.present(), 30) == "615.71"
    assert len(asked.answers) == 1  # the last
    assert [record.getMessage() for record in caplog.records] == [
        "NVML: not found; install it; waiting until there are cards",
        "NVML: other version; reboot; waiting until there are cards",
        "the driver answers, and has no card that could be used; waiting until there are cards",
    ]


async def test_a_driver_that_does_not_answer_has_no_cards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever asked keeps what he knew."""
    monkeypatch.setattr(driver, "_asked", Driver(ABSENT, (LOST,)))
    assert await driver.devices() == ()
    assert await driver.devices() == (LOST,)


async def test_what_a_context_costs_is_measured_once_for_each_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It takes a process; a card that is sick, or does not tell, has no cost."""
    asked: list[str] = []

    def measured(uuid: str) -> int | None:
        asked.append(uuid)
        return None if uuid == making.uuid(3) else 100 + len(asked)

    monkeypatch.setattr(driver, "_context_bytes", measured)
    found = await driver.context_costs(
        [
            making.device(0, problem="lost"),
            making.device(1),
            making.device(2),
            making.device(3, 24576),
            making.device(4, model="A30"),
            nvml.Device(index=5),
        ]
    )
    assert asked == [making.uuid(1), making.uuid(3), making.uuid(4)]
    assert found == {making.uuid(1): 101, making.uuid(2): 101, making.uuid(4): 103}


READINGS = """
import asyncio
from partage.agent import driver
async def main():
    readings = driver.Readings()
    first, *others = await asyncio.gather(*(readings.now() for _ in range(5)))
    print(len(first), all(other is first for other in [*others, await readings.now()]))
    driver._FRESH_S = 0.0
    print(await readings.now() is first, len(await readings.now()))
asyncio.run(main())
"""


def test_measurements_are_shared_by_who_asks_at_once(tmp_path: Path) -> None:
    """The simulated driver's cards are there, and the second question costs nothing."""
    machine = simulated.machine(tmp_path)
    told = simulated.python(READINGS, environment=machine)
    assert told.split() == ["2", "True", "False", "2"]


def test_without_a_driver_nothing_is_measured(tmp_path: Path) -> None:
    """And nothing is raised: the watch of health tells everybody."""
    environment = {"LD_LIBRARY_PATH": str(tmp_path), "PATH": "/usr/bin:/bin"}
    told = simulated.python(READINGS, environment=environment)
    assert told.split()[::3] == ["0", "0"]
