"""The fence hook, as the node side sees it: files, environment, and a library that fits."""

from __future__ import annotations

import os
import pathlib
import stat
import sys

import msgspec
import pytest

from partage.core import errors
from partage.fence.levels import catalog, hook
from partage.fence.library import libpartage, substitutes
from partage.fence.store import layout, limits, locks, roots, shared_files, tenants
from tests.fence import small_limits

JOB = catalog.Subject(name="job")
SUBSTITUTES = [f"{libpartage.SUBSTITUTES}/{name}" for name in (libpartage.CUDA, libpartage.NVML)]


@pytest.fixture
def preloaded(tmp_path: pathlib.Path) -> libpartage.Library:
    """Libraries that are for this machine: only their headers are looked at."""
    header = bytearray(pathlib.Path(sys.executable).read_bytes()[:64])
    header[16:18] = b"\3\0"
    (tmp_path / libpartage.SUBSTITUTES).mkdir()
    for part in (libpartage.NAME, *SUBSTITUTES):
        (tmp_path / part).write_bytes(header)
    return libpartage.find(tmp_path)


@pytest.fixture
def fence(root: roots.Root, preloaded: libpartage.Library) -> hook.Hook:
    """A fence with that library."""
    return hook.Hook(root, preloaded)


def test_a_process_gets_the_library_and_the_limits(
    fence: hook.Hook, root: roots.Root, preloaded: libpartage.Library
) -> None:
    """By three variables; and the limits are read back."""
    applied = fence.apply(JOB, small_limits.share(1, 2))

    assert not preloaded.problem
    folder = root.tenants / "job"
    assert applied.environment == {
        "LD_PRELOAD": str(folder / "lib" / libpartage.NAME),
        "LD_LIBRARY_PATH": str(folder / "lib"),
        "PARTAGE_LIMITS": str(folder / "limits"),
    }
    assert (folder / "lib" / libpartage.NAME).samefile(preloaded.path)
    assert applied.limits == small_limits.share(1, 2) == tenants.read(root, "job").limits


def test_other_libraries_and_paths_stay(root: roots.Root, preloaded: libpartage.Library) -> None:
    """Ours is the first of each, and is preloaded once."""
    inherited = {
        "LD_PRELOAD": f"/lib/a.so:{preloaded.path} /lib/b.so",
        "LD_LIBRARY_PATH": "/lib/c::/lib/d",
    }

    applied = hook.Hook(root, preloaded, inherited).apply(JOB, small_limits.share(1))

    ours = root.tenants / "job" / "lib"
    assert applied.environment["LD_PRELOAD"] == f"{ours / libpartage.NAME} /lib/a.so /lib/b.so"
    assert applied.environment["LD_LIBRARY_PATH"] == f"{ours}:/lib/c:/lib/d"
    assert substitutes.without(inherited | applied.environment) == {
        "LD_PRELOAD": "/lib/a.so /lib/b.so",
        "LD_LIBRARY_PATH": "/lib/c:/lib/d",
    }


def test_once_more_is_no_harm(fence: hook.Hook, root: roots.Root) -> None:
    """Somebody was killed and tries again: the same seat, the new limits."""
    fence.apply(JOB, small_limits.share(1))
    requested = small_limits.share(1, memory_bytes=7 * small_limits.GIB)

    assert fence.apply(JOB, requested).limits == requested
    assert tenants.read(root, "job").seats == (0,)


def test_a_change_is_read_back(fence: hook.Hook) -> None:
    """For a tenant that is there; for others it is refused."""
    fence.apply(JOB, small_limits.share(1))
    requested = small_limits.share(1, memory_bytes=7 * small_limits.GIB)

    assert fence.change(JOB, requested).limits == requested
    with pytest.raises(errors.InputError, match="no tenant other"):
        fence.change(catalog.Subject(name="other"), requested)


def test_what_to_do_on_failure_can_be_changed(fence: hook.Hook) -> None:
    """Applied again, all limits are the new ones."""
    fence.apply(JOB, small_limits.share(1))
    requested = msgspec.structs.replace(small_limits.share(1), on_failure=limits.OnFailure.OPEN)

    assert fence.apply(JOB, requested).limits == requested


def test_a_limit_that_is_not_what_was_set_is_an_error(
    fence: hook.Hook, root: roots.Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the tenant does not stay."""
    read = tenants.read

    def read_other(root: roots.Root, name: str) -> tenants.Tenant:
        return msgspec.structs.replace(
            read(root, name), limits=small_limits.share(1, memory_bytes=5)
        )

    monkeypatch.setattr(tenants, "read", read_other)
    with pytest.raises(errors.FenceError, match=r"job was set to .* but reads back as"):
        fence.apply(JOB, small_limits.share(1))
    assert tenants.names(root) == []


def test_release_waits_for_the_true_end(fence: hook.Hook, root: roots.Root) -> None:
    """Refused while a process lives; no harm when it is done already."""
    fence.apply(JOB, small_limits.share(1))
    with (root.tenants / "job" / "region").open("r+b") as living:
        assert locks.take(living.fileno(), 0)
        with pytest.raises(errors.FenceError, match="still use CUDA; end them first"):
            fence.release(JOB, small_limits.share(1))
    fence.release(JOB, small_limits.share(1))
    fence.release(JOB, small_limits.share(1))
    assert tenants.names(root) == []


def test_without_a_library_there_is_no_fence(root: roots.Root, tmp_path: pathlib.Path) -> None:
    """And no tenant that looks as if it had one."""
    fence = hook.Hook(root, libpartage.find(tmp_path / "nowhere"))

    with pytest.raises(errors.FenceError, match=r"libpartage.so cannot be read .*make native"):
        fence.apply(JOB, small_limits.share(1))
    assert tenants.names(root) == []


@pytest.mark.parametrize(
    ("offset", "content", "says"),
    [
        (0, b"\0\0\0\0", "is not a library"),
        (16, b"\2", "is not a shared library"),
        (18, b"\x08\x00", "is for another architecture than"),
        (4, b"\1", "is for another architecture"),
    ],
)
def test_a_library_for_another_machine_is_told(
    preloaded: libpartage.Library, offset: int, content: bytes, says: str
) -> None:
    """The loader would only warn, and run the program without a fence."""
    with preloaded.path.open("r+b") as file:
        file.seek(offset)
        file.write(content)

    library = libpartage.find(preloaded.path.parent)

    assert says in library.problem
    assert "wheel for this machine" in library.remedy


@pytest.mark.parametrize("name", ["a folder", "a:folder", "a;folder", "$ORIGIN"])
def test_a_library_anywhere_can_be_loaded(
    root: roots.Root, preloaded: libpartage.Library, name: str
) -> None:
    """The loader's lists know no quotes, so a path that no list can have is not named in one."""
    folder = preloaded.path.parent / name
    folder.mkdir()
    for part in (libpartage.NAME, libpartage.SUBSTITUTES):
        (preloaded.path.parent / part).rename(folder / part)

    applied = hook.Hook(root, libpartage.find(folder)).apply(JOB, small_limits.share(1))

    assert name not in applied.environment["LD_PRELOAD"]
    assert pathlib.Path(applied.environment["LD_PRELOAD"]).samefile(folder / libpartage.NAME)


@pytest.mark.parametrize("name", ["a root", "a:root", "a;root", "a$root", "a\troot"])
def test_a_root_that_no_list_can_name_is_reached_by_another_path(
    tmp_path: pathlib.Path, preloaded: libpartage.Library, name: str
) -> None:
    """Programs would start without their fence; and nothing is left of the path or the tenant."""
    root = roots.prepare(tmp_path / name)
    fence = hook.Hook(root, preloaded)

    environment = fence.apply(JOB, small_limits.share(1)).environment

    path = pathlib.Path(environment["LD_PRELOAD"])
    assert not set(" :;$\t") & set(str(path))
    assert path.samefile(preloaded.path)
    assert environment["LD_LIBRARY_PATH"] == str(path.parent)
    assert substitutes.without(environment) == {}
    fence.release(JOB, small_limits.share(1))
    assert not os.path.lexists(path.parent)
    assert tenants.names(root) == []


def test_nobody_else_can_write_where_libraries_are_loaded_from(
    fence: hook.Hook, root: roots.Root
) -> None:
    """Whatever the umask; and the folder goes with the tenant."""
    before = os.umask(0)
    try:
        fence.apply(JOB, small_limits.share(1))
    finally:
        os.umask(before)

    folder = root.tenants / "job" / "lib"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755
    fence.release(JOB, small_limits.share(1))
    assert not folder.exists()


def test_a_tenant_without_libraries_is_not_started_without_its_fence(
    fence: hook.Hook, root: roots.Root
) -> None:
    """One of a version that had no such folder."""
    tenants.create(root, "job", small_limits.share(1))

    with pytest.raises(errors.FenceError, match="has no library to load"):
        fence.apply(JOB, small_limits.share(1))


@pytest.mark.parametrize("part", SUBSTITUTES)
def test_without_what_stands_in_the_drivers_place_there_is_no_fence(
    root: roots.Root, preloaded: libpartage.Library, part: str
) -> None:
    """Some programs would get past the preload, and nobody would be told."""
    missing = preloaded.path.parent / part
    missing.unlink()
    fence = hook.Hook(root, libpartage.find(preloaded.path.parent))

    with pytest.raises(errors.FenceError, match=f"{missing} cannot be read"):
        fence.apply(JOB, small_limits.share(1))
    assert tenants.names(root) == []


def test_a_short_file_is_no_library(tmp_path: pathlib.Path) -> None:
    """As one that is half copied."""
    (tmp_path / libpartage.NAME).write_bytes(b"\x7fELF")

    assert "is not a library" in libpartage.find(tmp_path).problem


def test_a_grant_becomes_what_the_library_reads(fence: hook.Hook, root: roots.Root) -> None:
    """The words of the file, as the C side expects them."""
    requested = limits.Limits(
        (
            limits.CardLimits(
                uuid="GPU-01234567-89ab-cdef-0123-456789abcdef",
                memory_bytes=small_limits.GIB,
                context_bytes=300,
                mode=limits.Mode.BURST,
                share_millionths=250_000,
                ceiling_millionths=750_000,
            ),
        ),
        limits.OnFailure.OPEN,
    )
    fence.apply(JOB, requested)

    raw = shared_files.read(root.tenants / "job" / "limits", layout.Limits)

    card = raw.card[0]
    assert (raw.cards, raw.on_failure, raw.gate) == (1, layout.ON_FAILURE_OPEN, 1)
    assert bytes(card.uuid) == bytes.fromhex("0123456789abcdef0123456789abcdef")
    assert (card.memory_bytes, card.context_bytes) == (small_limits.GIB, 300)
    assert (card.mode, card.share, card.ceiling) == (layout.MODE_BURST, 250_000, 750_000)
    assert (card.paused, card.seat) == (0, 0)
