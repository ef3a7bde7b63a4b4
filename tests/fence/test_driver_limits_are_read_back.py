"""The fence driver, over a port that does what NVML's documentation says, or does not."""

from __future__ import annotations

import pathlib

import msgspec
import pytest

from partage.core import errors
from partage.fence import driver, levels, limits
from tests.fence import making


class Found(msgspec.Struct, frozen=True):
    """Limits as they are in force."""

    soft_bytes: int
    hard_bytes: int


class Port:
    """A driver that keeps limits, and can be told to fail on a card."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], Found] = {}
        self.failing: dict[str, errors.DeviceError] = {}
        self.skew = self.soft = 0
        self.forgetful = False

    def set_memory_limits(
        self, uuid: str, cgroup: str, *, soft_bytes: int, hard_bytes: int
    ) -> None:
        """Keep them, or something near."""
        if uuid in self.failing:
            raise self.failing[uuid]
        self.kept[uuid, cgroup] = Found(soft_bytes + self.soft, hard_bytes - self.skew)
        if self.forgetful and hard_bytes == driver.NO_LIMIT:
            del self.kept[uuid, cgroup]

    def memory_limits(self, uuid: str, cgroup: str) -> Found:
        """What is kept."""
        if (uuid, cgroup) not in self.kept:
            raise errors.DeviceError("not-found", "Not Found")
        return self.kept[uuid, cgroup]


@pytest.fixture
def job(tmp_path: pathlib.Path) -> levels.Subject:
    """A tenant in a cgroup: any folder will do for this port."""
    return levels.Subject(name="job", cgroup=str(tmp_path))


def test_memory_is_limited_and_read_back(job: levels.Subject) -> None:
    """A hard limit on each card and no soft one; compute is not claimed."""
    port = Port()
    asked = limits.Limits(
        (
            limits.CardLimits(
                uuid=making.uuid(1),
                memory_bytes=making.GIB,
                mode=limits.Mode.FIXED,
                share_millionths=300_000,
            ),
            limits.CardLimits(uuid=making.uuid(2)),
        )
    )

    applied = driver.Driver(port).apply(job, asked)

    assert port.kept == {
        (making.uuid(1), job.cgroup): Found(0, making.GIB),
        (making.uuid(2), job.cgroup): Found(0, 0xFFFFFFFFFFFFFFFF),
    }
    assert applied.limits.cards == (
        limits.CardLimits(uuid=making.uuid(1), memory_bytes=making.GIB),
        limits.CardLimits(uuid=making.uuid(2)),
    )
    assert applied.environment == {}


def test_a_limit_that_is_not_what_was_set_is_an_error(job: levels.Subject) -> None:
    """Never a success."""
    port = Port()
    port.skew = 4096

    with pytest.raises(errors.FenceError, match=r"hard 2147483648 bytes and is .*2147479552 bytes"):
        driver.Driver(port).apply(job, making.share(1))


def test_a_soft_limit_that_nobody_set_is_an_error(job: levels.Subject) -> None:
    """It would stay with the cgroup's ancestors."""
    port = Port()
    port.soft = 1

    with pytest.raises(errors.FenceError, match=r"set to soft 0, hard .* and is soft 1"):
        driver.Driver(port).apply(job, making.share(1))


@pytest.mark.parametrize(
    ("reason", "says"),
    [
        ("no-permission", "set limits as root"),
        ("not-supported", "use the level mps or hook; cards in MIG mode cannot be limited"),
        ("function-not-found", "install a driver of version 615 or newer"),
        ("not-found", "name the leaf of the tenant's cgroups"),
        ("operating-system", "name the full path of a cgroup of version 2"),
        ("invalid-argument", "ask for no more memory than the card has"),
        ("gpu-is-lost", "reset it or reboot"),
        ("something-new", "as the port says"),
    ],
)
def test_every_refusal_says_what_to_do(job: levels.Subject, reason: str, says: str) -> None:
    """The card, the cgroup, NVML's words, and the next step."""
    port = Port()
    port.failing[making.uuid(2)] = errors.DeviceError(reason, "Odd", instead="as the port says")

    with pytest.raises(errors.FenceError) as told:
        driver.Driver(port).apply(job, making.share(1, 2))

    assert f"no memory limit for {job.cgroup} on card {making.uuid(2)}: Odd" in str(told.value)
    assert says in told.value.instead


def test_a_failure_lifts_no_limit(job: levels.Subject) -> None:
    """A tenant that runs, and is set up once more while a card is sick, keeps what it has."""
    port = Port()
    fence = driver.Driver(port)
    fence.apply(job, making.share(1, 2))
    port.failing[making.uuid(2)] = errors.DeviceError("gpu-is-lost", "GPU is lost")

    with pytest.raises(errors.FenceError, match="GPU is lost"):
        fence.apply(job, making.share(1, 2))
    assert {found.hard_bytes for found in port.kept.values()} == {2 * making.GIB}


def test_a_cgroup_that_is_not_known_or_not_there_is_told(tmp_path: pathlib.Path) -> None:
    """Before NVML is asked anything."""
    fence = driver.Driver(Port())

    with pytest.raises(errors.FenceError, match="the cgroup of job is not known"):
        fence.apply(levels.Subject(name="job"), making.share(1))
    gone = levels.Subject(name="job", cgroup=str(tmp_path / "gone"))
    with pytest.raises(errors.FenceError, match=r"there is no cgroup .*gone; make the cgroup"):
        fence.apply(gone, making.share(1))
    fence.release(gone, making.share(1))


@pytest.mark.parametrize("forgetful", [False, True])
def test_release_lifts_the_limits(job: levels.Subject, *, forgetful: bool) -> None:
    """A cgroup that is used again has none left; once more is no harm.

    NVML's documentation has both: no limit is the largest number, and none is found.
    """
    port = Port()
    port.forgetful = forgetful
    fence = driver.Driver(port)
    fence.apply(job, making.share(1))
    fence.change(job, making.share(1, memory_bytes=making.GIB))
    assert port.kept[making.uuid(1), job.cgroup] == Found(0, making.GIB)

    fence.release(job, making.share(1))
    fence.release(job, making.share(1))

    left = {} if forgetful else {(making.uuid(1), job.cgroup): Found(0, driver.NO_LIMIT)}
    assert port.kept == left
