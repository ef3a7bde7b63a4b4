"""Building: the programs of a Kubernetes cluster, compiled once from the pinned module.

No package of Debian or of Python has them, so they are built with Go from ``programs/go.mod``, from
which their versions are read too. They are kept outside the checkout, in a folder named after a
checksum of everything that decides what is built: a new pin gives a new folder, and all checkouts
with the same pins share one. A folder gets its name when it is complete, so a build that was killed
leaves nothing that looks finished; a lock makes a second build wait for the first and use what it
made.

Where modules are downloaded from is Go's business (GOPROXY), and nothing here interferes with it.
"""

from __future__ import annotations

import collections
import hashlib
import os
import platform
import re
import shutil
import signal
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import IO

from cluster import locking, processes, progress

MODULE = Path(__file__).with_name("programs")
PROGRAMS = (
    "containerd",
    "containerd-shim-runc-v2",
    "ctr",
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubectl",
    "kubelet",
)

_TAGS = "grpcnotrace no_btrfs no_zfs no_devmapper no_tracing"
_CONTAINERD = "github.com/containerd/containerd/v2"
_UNFINISHED = "unfinished-"  # folders of builds that run, or were killed
_TAIL_LINES = 15
_WAITING = "another build is running, waiting for it"


class CannotBuild(Exception):
    """The programs are not there and cannot be built here; the text says what to do."""


def cache_folder() -> Path:
    """Where Partage keeps what is large and can be made again."""
    if chosen := os.environ.get("PARTAGE_CACHE"):
        return Path(chosen).resolve()
    user = os.environ.get("XDG_CACHE_HOME")
    return (Path(user) if user else Path.home() / ".cache") / "partage"


def programs_folder() -> Path:
    """Where the programs of the present pins are, or will be."""
    return cache_folder() / "programs" / _key()


def ensure() -> Path:
    """The folder with the programs, built if need be; says on stderr how far it is."""
    folder = programs_folder()
    if folder.exists():
        return folder
    _check_go()
    shown = progress.Progress("programs")
    with locking.exclusive(folder.parent / "lock", on_wait=lambda: shown.note(_WAITING)):
        if not folder.exists():  # another build may have made it while we waited
            _build(folder, shown)
    return folder


def _build(folder: Path, shown: progress.Progress) -> None:
    for left in folder.parent.glob(_UNFINISHED + "*"):
        shutil.rmtree(left)
    unfinished = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=folder.parent))
    shown.note(f"building Kubernetes {_version('k8s.io/kubernetes')} from source into {folder}")
    shown.note(
        "this happens once and takes 8 to 15 minutes on two cores, 5 GB of disk for Go's caches"
    )
    try:
        _compile(unfinished, shown)
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    shown.done("built")


def _compile(unfinished: Path, shown: progress.Progress) -> None:
    scratch = unfinished / "go-tmp"
    scratch.mkdir()
    packages = _Go(["list", "-deps", "-tags", _TAGS, "tool"], scratch).run(shown, set())
    _Go(["build", "-v", *_flags(), "-o", f"{unfinished}/", "tool"], scratch).run(
        shown, set(packages)
    )
    shutil.rmtree(scratch)
    (unfinished / "server").rename(unfinished / "etcd")  # Go names it after its folder
    missing = [name for name in PROGRAMS if not (unfinished / name).exists()]
    if missing:
        raise CannotBuild(f"the build did not make {', '.join(missing)}")


class _Go:
    """One run of the go command: what it prints is counted, and shown only if it fails."""

    def __init__(self, arguments: list[str], scratch: Path) -> None:
        self._command = [_go(), *arguments]
        self._environment = {**_environment(), "GOTMPDIR": str(scratch)}
        self._downloaded = 0
        self._compiled = 0
        self._others: collections.deque[str] = collections.deque(maxlen=_TAIL_LINES)

    def run(self, shown: progress.Progress, packages: set[str]) -> list[str]:
        """Run to the end; gives what was printed on stdout."""
        with tempfile.TemporaryFile() as output:
            self._run(shown, packages, output)
            output.seek(0)
            return output.read().decode().splitlines()

    def _run(self, shown: progress.Progress, packages: set[str], output: IO[bytes]) -> None:
        child = processes.spawn(
            self._command,
            leashed=True,
            stdout=output,
            stderr=subprocess.PIPE,
            cwd=MODULE,
            env=self._environment,
        )
        with child:
            reader = threading.Thread(target=self._read, args=(child.stderr, packages))
            reader.start()
            try:
                while not _ended(child, within_seconds=1):
                    shown.update(self._so_far(len(packages)))
            except BaseException:  # Ctrl-C, which reaches neither go nor the compilers it runs
                os.killpg(child.pid, signal.SIGKILL)
                raise
            finally:
                reader.join()
        if child.returncode != 0:
            raise CannotBuild("go failed:\n" + "\n".join(self._others))

    def _read(self, lines: IO[bytes], packages: set[str]) -> None:
        for raw in lines:
            line = raw.decode(errors="replace").rstrip()
            if line in packages:
                self._compiled += 1
            elif line.startswith("go: downloading"):
                self._downloaded += 1
            else:
                self._others.append(line)

    def _so_far(self, packages: int) -> str:
        if not packages:
            return f"reading the modules, {self._downloaded} downloaded so far"
        if self._compiled < 0.98 * packages:
            return f"compiling, {self._compiled} of at most {packages} packages"
        return f"linking {len(PROGRAMS)} programs"


def _ended(child: subprocess.Popen[bytes], *, within_seconds: float) -> bool:
    try:
        child.wait(within_seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def _check_go() -> None:
    needed = _needed_go()
    advice = f"Go {needed} or newer is needed to build Kubernetes for the tests; install it and"
    advice += " put it on PATH. It is used for tests only, never by Partage itself."
    if not shutil.which("go"):
        raise CannotBuild(f"there is no go command. {advice}")
    asked = [_go(), "env", "GOVERSION"]
    found = subprocess.run(asked, capture_output=True, text=True, env=_environment(), check=False)
    version = found.stdout.strip().removeprefix("go")
    if _numbers(version) < _numbers(needed):
        raise CannotBuild(f"go is version {version or 'unknown'}. {advice}")


def _go() -> str:
    return shutil.which("go") or "go"


def _environment() -> dict[str, str]:
    """Ours, and what makes the same programs everywhere: no C, no other Go, no changed pins."""
    fixed = {
        "CGO_ENABLED": "0",
        "GOTOOLCHAIN": "local",
        "GOFLAGS": "-mod=readonly",
        "GOWORK": "off",
    }
    return {**os.environ, **fixed}


def _flags() -> list[str]:
    return ["-trimpath", "-tags", _TAGS, "-ldflags", _link_flags()]


def _link_flags() -> str:
    """Versions: feature gates depend on them, so a program has to know its own."""
    kubernetes, containerd = _version("k8s.io/kubernetes"), _version(_CONTAINERD)
    major, minor, _ = kubernetes.removeprefix("v").split(".")
    facts = {
        "gitVersion": kubernetes,
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "clean",
        "gitCommit": "module",
        "buildDate": "1970-01-01T00:00:00Z",
    }
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    settings = [
        f"{package}.{name}={value}" for package in packages for name, value in facts.items()
    ]
    settings += [f"{_CONTAINERD}/version.Version={containerd}"]
    settings += [f"{_CONTAINERD}/version.Package={_CONTAINERD}"]
    return " ".join(["-s -w", *(f"-X {setting}" for setting in settings)])


def _key() -> str:
    parts = [(MODULE / name).read_bytes() for name in ("go.mod", "go.sum")]
    parts += [" ".join(_flags()).encode(), platform.machine().encode()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def _version(module: str) -> str:
    return _pinned(rf"^\s{re.escape(module)} (v\S+)")


def _needed_go() -> str:
    return _pinned(r"^go (\S+)")


def _pinned(pattern: str) -> str:
    found = re.search(pattern, (MODULE / "go.mod").read_text(), re.MULTILINE)
    if found is None:
        raise CannotBuild(f"{MODULE / 'go.mod'} has no line like {pattern}")
    return found[1]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])
