"""The fence driver, over a port that does what NVML's documentation says, or does not."""

from __future__ import annotations

import pathlib

import msgspec
import pytest

from partage.core import errors
from partage.fence.levels import catalog, driver
from partage.fence.store import limits
from tests.fence import small_limits


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
def job(tmp_path: pathlib.Path) -> catalog.Subject:
    """A tenant in a cgroup: any folder will do for this port."""
    return catalog.Subject(name="job", cgroup=str(tmp_path))


def test_memory_is_limited_and_read_back(job: catalog.Subject) -> None:
    """A hard limit on each card and no soft one; compute is not claimed."""
    port = Port()
    requested = limits.Limits(
        (
            limits.CardLimits(
                uuid=small_limits.uuid(1),
                memory_bytes=small_limits.GIB,
                mode=limits.Mode.FIXED,
                share_millionths=300_000,
            ),
            limits.CardLimits(uuid=small_limits.uuid(2)),
        )
    )

    applied = driver.Driver(port).apply(job, requested)

    assert port.kept == {
        (small_limits.uuid(1), job.cgroup): Found(0, small_limits.GIB),
        (small_limits.uuid(2), job.cgroup): Found(0, 0xFFFFFFFFFFFFFFFF),
    }
    assert applied.limits.cards == (
        limits.CardLimits(uuid=small_limits.uuid(1), memory_bytes=small_limits.GIB),
        limits.CardLimits(uuid=small_limits.uuid(2)),
    )
    assert applied.environment == {}


def test_a_limit_that_is_not_what_was_set_is_an_error(job: catalog.Subject) -> None:
    """Never a success."""
    port = Port()
    port.skew = 4096

    with pytest.raises(
        errors.FenceError, match=r"hard 2147483648 bytes but reads back as .*2147479552 bytes"
    ):
        driver.Driver(port).apply(job, small_limits.share(1))


def test_a_soft_limit_that_nobody_set_is_an_error(job: catalog.Subject) -> None:
    """It would stay with the cgroup's ancestors."""
    port = Port()
    port.soft = 1

    with pytest.raises(errors.FenceError, match=r"set to soft 0, hard .* but reads back as soft 1"):
        driver.Driver(port).apply(job, small_limits.share(1))


@pytest.mark.parametrize(
    ("reason", "says"),
    [
        ("no-permission", "set the limits as root"),
        ("not-supported", "use the level hook; cards in MIG mode cannot be limited"),
        ("function-not-found", "install a driver of version 615 or newer"),
        ("not-found", "give the leaf cgroup of the tenant"),
        ("operating-system", "give the full path of a cgroup v2"),
        ("invalid-argument", "request no more memory than the card has"),
        ("gpu-is-lost", "reset it or reboot"),
        ("something-new", "as the port says"),
    ],
)
def test_every_refusal_says_what_to_do(job: catalog.Subject, reason: str, says: str) -> None:
    """The card, the cgroup, NVML's words, and the next step."""
    port = Port()
    port.failing[small_limits.uuid(2)] = errors.DeviceError(
        reason, "Odd", instead="as the port says"
    )

    with pytest.raises(errors.FenceError) as refusal:
        driver.Driver(port).apply(job, small_limits.share(1, 2))

    assert f"cannot limit the memory of {job.cgroup} on card {small_limits.uuid(2)}: Odd" in str(
        refusal.value
    )
    assert says in refusal.value.instead


def test_a_failure_lifts_no_limit(job: catalog.Subject) -> None:
    """A tenant that runs, and is set up once more while a card is unhealthy, keeps what it has."""
    port = Port()
    fence = driver.Driver(port)
    fence.apply(job, small_limits.share(1, 2))
    port.failing[small_limits.uuid(2)] = errors.DeviceError("gpu-is-lost", "GPU is lost")

    with pytest.raises(errors.FenceError, match="GPU is lost"):
        fence.apply(job, small_limits.share(1, 2))
    assert {kept.hard_bytes for kept in port.kept.values()} == {2 * small_limits.GIB}


def test_a_cgroup_that_is_not_known_or_not_there_is_told(tmp_path: pathlib.Path) -> None:
    """Before NVML is asked anything."""
    fence = driver.Driver(Port())

    with pytest.raises(errors.FenceError, match="the cgroup of job is not known"):
        fence.apply(catalog.Subject(name="job"), small_limits.share(1))
    gone = catalog.Subject(name="job", cgroup=str(tmp_path / "gone"))
    with pytest.raises(errors.FenceError, match=r"cgroup .*gone does not exist; make the cgroup"):
        fence.apply(gone, small_limits.share(1))
    fence.release(gone, small_limits.share(1))


@pytest.mark.parametrize("forgetful", [False, True])
def test_release_lifts_the_limits(job: catalog.Subject, *, forgetful: bool) -> None:
    """A cgroup that is used again has none left; once more is no harm.

    NVML's documentation has both: no limit is the largest number, and none is found.
    """
    port = Port()
    port.forgetful = forgetful
    fence = driver.Driver(port)
    fence.apply(job, small_limits.share(1))
    fence.change(job, small_limits.share(1, memory_bytes=small_limits.GIB))
    assert port.kept[small_limits.uuid(1), job.cgroup] == Found(0, small_limits.GIB)

    fence.release(job, small_limits.share(1))
    fence.release(job, small_limits.share(1))

    left = {} if forgetful else {(small_limits.uuid(1), job.cgroup): Found(0, driver.NO_LIMIT)}
    assert port.kept == left
