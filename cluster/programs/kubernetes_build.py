"""The build of Kubernetes: the programs of a cluster, compiled once from the pinned modules.

No package of Debian or of Python has them in these versions, so they are built with Go from
``go.mod`` beside this file, from which their versions are read too. They are kept outside the
checkout, in a folder named after a checksum of everything that decides what is built: a new pin
gives a new folder, and all checkouts with the same pins share one. A folder gets its name when it
is complete, so a build that was killed leaves nothing that looks finished; a lock makes a second
build wait for the first and use what it made.

runc, which only real nodes need, has a module and a folder of its own: a part of it is in C, so it
needs a C compiler, and it takes seconds instead of minutes. So have kube-proxy and CoreDNS, which
only a network of pods needs: most of what they are made of is compiled by then. And so has helm,
which renders the chart: it is made from other versions of Kubernetes' libraries.

An older Kubernetes (:mod:`cluster.programs.kubernetes_versions`) is built from a module of its own.
Its folder has etcd and containerd of the newest beside it, as links to the same files.
"""

from __future__ import annotations

import functools
import hashlib
import json
import platform
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from cluster import locks, progress
from cluster.programs import go_command, kubernetes_versions
from cluster.programs.go_command import CannotBuild
from image import cache

__all__ = [
    "PROGRAMS",
    "CannotBuild",
    "cache_folder",
    "ensure",
    "ensure_coredns",
    "ensure_helm",
    "ensure_kube_proxy",
    "ensure_runc",
    "programs_folder",
    "version",
]

MODULE = kubernetes_versions.NEWEST
RUNC = MODULE / "runc"
HELM = MODULE / "helm"
KUBE_PROXY = MODULE / "kube-proxy"
COREDNS = MODULE / "coredns"
_KUBE_PROXY = "kube-proxy"  # of an older Kubernetes it is built with the others
_OF_KUBERNETES = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubectl",
    "kubelet",
)
_OF_OTHERS = ("containerd", "containerd-shim-runc-v2", "ctr", "etcd")
PROGRAMS = (*_OF_OTHERS, *_OF_KUBERNETES)

_TAGS = "grpcnotrace no_btrfs no_zfs no_devmapper no_tracing"
_KUBERNETES = "k8s.io/kubernetes"
_CONTAINERD = "github.com/containerd/containerd/v2"
_RUNC = "github.com/opencontainers/runc"
_HELM = "helm.sh/helm/v4"
_PATCH = (
    "libcontainer/seccomp/seccomp_unsupported.go",
    "return -1, ErrSeccompNotEnabled",
    "return -1, nil",
)
_UNFINISHED = "unfinished-"  # folders of builds that run, or were killed
_WAITING = "another build is running, waiting for it"
_SECONDS = "this takes a minute at most"


def cache_folder() -> Path:
    """Where Partage keeps what is large and can be made again."""
    return cache.root()


def programs_folder() -> Path:
    """Where the programs of the chosen Kubernetes are, or will be."""
    return _folder(kubernetes_versions.chosen())


def ensure() -> Path:
    """The folder with the programs, built if need be; says on stderr how far it is."""
    return _ensure(kubernetes_versions.chosen())


def version() -> str:
    """The version of Kubernetes, as ``v1.36.3``."""
    return _version(kubernetes_versions.chosen(), _KUBERNETES)


def ensure_runc() -> Path:
    """The program runc, built if need be."""
    folder = cache_folder() / "runc" / _key(RUNC, [_PATCH])
    if not folder.exists():
        what = f"runc {go_command.pinned(RUNC, _pin(_RUNC))}"
        _build(folder, RUNC, what, _SECONDS, _compile_runc)
    return folder / "runc"


def ensure_helm() -> Path:
    """The program helm, built if need be."""
    folder = cache_folder() / "helm" / _key(HELM, [" ".join(_helm_flags())])
    if not folder.exists():
        version = go_command.pinned(HELM, _pin(_HELM))
        note = "this takes 3 to 12 minutes on two cores"
        _build(folder, HELM, f"helm {version}", note, _compile_helm)
    return folder / "helm"


def ensure_kube_proxy() -> Path:
    """The program kube-proxy, built if need be."""
    if kubernetes_versions.chosen() != MODULE:
        return ensure() / _KUBE_PROXY
    return _ensure_tool(KUBE_PROXY, f"kube-proxy {version()}", _flags(MODULE))


def ensure_coredns() -> Path:
    """The program CoreDNS, built if need be."""
    flags = ["-trimpath", "-ldflags", "-s -w"]
    pinned = go_command.pinned(COREDNS, r"github.com/coredns/coredns (v\S+)")
    return _ensure_tool(COREDNS, f"CoreDNS {pinned}", flags)


_Compile = Callable[[Path, progress.Progress], None]


def _folder(module: Path) -> Path:
    facts: list[object] = [" ".join(_flags(module))]
    if module != MODULE:
        facts.append(_folder(MODULE).name)  # what it has of others' programs
    return cache_folder() / "programs" / _key(module, facts)


def _ensure(module: Path) -> Path:
    folder = _folder(module)
    if not folder.exists():
        if module != MODULE:
            _ensure(MODULE)
        note = "this takes 8 to 15 minutes on two cores, and 5 GB of disk for Go's caches"
        what = f"Kubernetes {_version(module, _KUBERNETES)}"
        _build(folder, module, what, note, functools.partial(_compile, module))
    return folder


def _ensure_tool(module: Path, what: str, flags: list[str]) -> Path:
    """The one program of a module of its own, named like the module's folder."""
    sources = [path.read_text() for path in sorted(module.glob("*.go"))]
    folder = cache_folder() / module.name / _key(module, [" ".join(flags), *sources])

    def compile_into(unfinished: Path, shown: progress.Progress) -> None:
        build = ["build", *flags, "-o", f"{unfinished}/", "tool"]
        go_command.Go(build, module, unfinished / "go-tmp").run(shown, set())

    if not folder.exists():
        _build(folder, module, what, _SECONDS, compile_into)
    return folder / module.name


def _build(folder: Path, module: Path, what: str, note: str, compile_into: _Compile) -> None:
    go_command.check_go(module)
    shown = progress.Progress("programs")
    with locks.exclusive(folder.parent / "lock", on_wait=lambda: shown.note(_WAITING)):
        if folder.exists():  # another build made it while we waited
            return
        shown.note(f"building {what} from source into {folder}")
        shown.note(f"this happens once; {note}")
        _build_alone(folder, shown, compile_into)
        shown.done("built")


def _build_alone(folder: Path, shown: progress.Progress, compile_into: _Compile) -> None:
    for left in folder.parent.glob(_UNFINISHED + "*"):
        shutil.rmtree(left)
    unfinished = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=folder.parent))
    scratch = unfinished / "go-tmp"
    scratch.mkdir()
    try:
        compile_into(unfinished, shown)
        shutil.rmtree(scratch)
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _compile(module: Path, unfinished: Path, shown: progress.Progress) -> None:
    scratch = unfinished / "go-tmp"
    listing = ["list", "-deps", "-tags", _TAGS, "tool"]
    packages = go_command.Go(listing, module, scratch).run(shown, set())
    build = ["build", "-v", *_flags(module), "-o", f"{unfinished}/", "tool"]
    go_command.Go(build, module, scratch).run(shown, set(packages))
    if module == MODULE:
        (unfinished / "server").rename(unfinished / "etcd")  # Go names it after its folder
    else:
        for name in _OF_OTHERS:
            (unfinished / name).hardlink_to(_folder(MODULE) / name)
    missing = [name for name in PROGRAMS if not (unfinished / name).exists()]
    if missing:
        raise CannotBuild(f"the build did not make {', '.join(missing)}")


def _compile_helm(unfinished: Path, shown: progress.Progress) -> None:
    scratch = unfinished / "go-tmp"
    listing = ["list", "-deps", "tool"]
    packages = go_command.Go(listing, HELM, scratch).run(shown, set())
    build = ["build", "-v", *_helm_flags(), "-o", f"{unfinished}/", "tool"]
    go_command.Go(build, HELM, scratch).run(shown, set(packages))


def _compile_runc(unfinished: Path, shown: progress.Progress) -> None:
    """runc, changed in one line.

    With seccomp it needs headers that few machines have. Without, it refuses containers that ask
    for it, and kubelet asks for it in every pod's sandbox; changed, it does without.
    """
    scratch = unfinished / "go-tmp"
    listing = ["list", "-m", "-json", _RUNC]
    go_command.Go(["mod", "download", _RUNC], RUNC, scratch).run(shown, set())
    pinned = json.loads("".join(go_command.Go(listing, RUNC, scratch).run(shown, set())))
    changed = shutil.copytree(pinned["Dir"], scratch / "runc", copy_function=shutil.copyfile)
    _patch(changed)
    (scratch / "go.sum").write_text((RUNC / "go.sum").read_text())
    replaced = f"\nreplace {_RUNC} => {changed}\n"
    (scratch / "go.mod").write_text((RUNC / "go.mod").read_text() + replaced)
    flags = ["-trimpath", "-ldflags", "-s -w", "-modfile", str(scratch / "go.mod")]
    build = ["build", *flags, "-o", f"{unfinished}/", "tool"]
    go_command.Go(build, RUNC, scratch, with_c=True).run(shown, set())


def _patch(source: Path) -> None:
    name, before, after = _PATCH
    text = (source / name).read_text()
    if text.count(before) != 1:
        raise CannotBuild(f"{name} of runc is not what was expected; _PATCH must be written anew")
    (source / name).write_text(text.replace(before, after))


def _flags(module: Path) -> list[str]:
    return ["-trimpath", "-tags", _TAGS, "-ldflags", _link_flags(module)]


def _helm_flags() -> list[str]:
    """With its version, which it compares with what a chart needs."""
    version = go_command.pinned(HELM, _pin(_HELM))
    return ["-trimpath", "-ldflags", f"-s -w -X {_HELM}/internal/version.version={version}"]


def _link_flags(module: Path) -> str:
    """Versions: feature gates depend on them, so a program has to know its own."""
    kubernetes = _version(module, _KUBERNETES)
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
    if module == MODULE:
        settings += [f"{_CONTAINERD}/version.Version={_version(MODULE, _CONTAINERD)}"]
        settings += [f"{_CONTAINERD}/version.Package={_CONTAINERD}"]
    return " ".join(["-s -w", *(f"-X {setting}" for setting in settings)])


def _key(module: Path, facts: list[object]) -> str:
    parts = [(module / name).read_bytes() for name in ("go.mod", "go.sum")]
    parts += [*(str(fact).encode() for fact in facts), platform.machine().encode()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def _version(module: Path, required: str) -> str:
    return go_command.pinned(module, _pin(required))


def _pin(module: str) -> str:
    return rf"^\s{re.escape(module)} (v\S+)"
