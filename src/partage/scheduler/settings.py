"""Settings of the extender: a TOML file, the environment over it, the command line over both.

Unknown keys and values out of range are refused, with the place they were written in. The
environment knows the four names that gpushare's manifests set.
"""

from __future__ import annotations

import pathlib
import tomllib
import typing
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from partage.core import errors
from partage.dialects import base

DEFAULT_PORT = 39999  # gpushare's
ON_THE_WAY_S = 0.5  # of kube-scheduler's time, for request and answer
_ENOUGH = 16  # nodes to choose from; our own score decides among the first few anyway
_HOLD_S = 15.0
_BIND_S = 3.0
_UNITS_MIB = {"auto": 1024, "GiB": 1024, "MiB": 1}

Seconds = Annotated[float, msgspec.Meta(gt=0, le=3600)]


class SettingsError(errors.InputError):
    """A setting that cannot be used."""

    code = "bad-setting"


class Server(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where to listen. With a certificate it speaks TLS; with a client CA it asks for theirs."""

    address: str = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = DEFAULT_PORT  # 0: any free one
    certificate: str = ""
    key: str = ""
    client_ca: str = ""

    def __post_init__(self) -> None:
        if bool(self.certificate) != bool(self.key):
            raise ValueError("a certificate needs its key, and a key its certificate")
        if self.client_ca and not self.certificate:
            raise ValueError("clients show certificates over TLS only: set certificate and key")


class Cluster(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How to reach the API server; empty: as kubectl does, or as a pod does."""

    kubeconfig: str = ""
    context: str = ""


class Decisions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How to decide."""

    policy: Literal["priced", "binpack", "spread"] = "priced"
    # In the answer of filter. "auto": one for a pod that does not say where it would rather be, so
    # that kube-scheduler need not ask for priorities and score; else as many as are worth it.
    nodes: Annotated[int, msgspec.Meta(ge=1)] | Literal["all", "auto"] = "auto"
    hold_s: Annotated[float, msgspec.Meta(ge=10, le=600)] | None = None  # None: long enough
    memory_unit: Literal["auto", "GiB", "MiB"] = "auto"  # of aliyun.com/gpu-mem
    qgpu_max_cards: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 2

    @property
    def limit(self) -> int:
        """How many nodes at most; 0: all."""
        if self.nodes == "all":
            return 0
        return _ENOUGH if self.nodes == "auto" else self.nodes

    @property
    def limit_without_preference(self) -> int:
        """The same for pods that prefer no node to another."""
        return 1 if self.nodes == "auto" else self.limit

    @property
    def dialects(self) -> base.Settings:
        """What the dialects need to know."""
        return base.Settings(
            memory_unit_mib=_UNITS_MIB[self.memory_unit], qgpu_max_cards=self.qgpu_max_cards
        )


class Leader(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which of several replicas decides. With one replica there is no need to ask."""

    elect: bool = False
    namespace: str = "kube-system"
    name: str = "partage-extender"
    lease_s: Annotated[float, msgspec.Meta(ge=10, le=600)] = 15.0
    renew_s: Seconds = 2.0


class Scheduler(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What kube-scheduler is configured with; it does not tell."""

    http_timeout_s: Annotated[float, msgspec.Meta(ge=2, le=300)] = 10.0  # httpTimeout

    @property
    def patience_s(self) -> float:
        """How long a bind may take here, so that its answer still arrives."""
        return self.http_timeout_s - ON_THE_WAY_S


class Binds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How Bindings are sent to the API server."""

    most_in_flight: Annotated[int, msgspec.Meta(ge=2, le=1024)] = 32
    # From the sending; None: as long as fits.
    timeout_s: Annotated[float, msgspec.Meta(ge=0.5, le=60)] | None = None


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All of it."""

    server: Server = Server()
    cluster: Cluster = Cluster()
    decisions: Decisions = Decisions()
    leader: Leader = Leader()
    scheduler: Scheduler = Scheduler()
    binds: Binds = Binds()
    log_level: Literal["debug", "info", "warn", "error"] = "info"

    @property
    def hold_s(self) -> float:
        """How long a hold lasts: what is written, or long enough for the bind that it waits for."""
        return self.decisions.hold_s or max(_HOLD_S, self.scheduler.http_timeout_s)

    @property
    def bind_timeout_s(self) -> float:
        """For the answer to a Binding: what is written, or what leaves time to wait for a turn."""
        return self.binds.timeout_s or min(_BIND_S, self.scheduler.patience_s / 2)


def _check(chosen: Settings) -> None:
    """Refuse times that do not fit together: it would show under load only."""
    timeout_s, leader, scheduler = chosen.bind_timeout_s, chosen.leader, chosen.scheduler
    http_s = f"scheduler.http_timeout_s = {scheduler.http_timeout_s:g}"
    if timeout_s > scheduler.patience_s:
        raise SettingsError(
            f"binds.timeout_s = {timeout_s:g} is too long: kube-scheduler gives up after {http_s}",
            instead=f"write at most {scheduler.patience_s:g}, or give the extender a longer "
            "httpTimeout in kube-scheduler's configuration, and say so here",
        )
    if chosen.hold_s < scheduler.http_timeout_s:
        raise SettingsError(
            f"decisions.hold_s = {chosen.hold_s:g} is shorter than {http_s}: holds would end while "
            "their binds wait",
            instead="write more for hold_s, or leave it out",
        )
    if leader.elect and leader.renew_s > leader.lease_s / 3:
        raise SettingsError(
            f"leader.renew_s = {leader.renew_s:g} is too long for leader.lease_s = "
            f"{leader.lease_s:g}: one renewal that fails would end the lease",
            instead=f"write at most {leader.lease_s / 3:g}",
        )
    if leader.elect and timeout_s + 1 > leader.lease_s - 2 * leader.renew_s:
        raise SettingsError(
            f"binds.timeout_s = {timeout_s:g} is too long for leader.lease_s = {leader.lease_s:g}, "
            f"of which {leader.lease_s - 2 * leader.renew_s:g} s are left for a bind",
            instead="write less, or a longer lease",
        )


def load(path: str, environ: Mapping[str, str], flags: Mapping[str, Any]) -> Settings:
    """The settings in force; ``flags`` are dotted names with values that are not None."""
    written = _file(path) if path else {}
    _convert(written, path)  # what is wrong in the file is wrong even if a flag covers it
    for name, value in (*_environment(environ).items(), *flags.items()):
        _set(written, name, value)
    chosen = _convert(written, "")
    _check(chosen)
    return chosen


def _convert(written: dict[str, Any], path: str) -> Settings:
    try:
        return msgspec.convert(written, Settings)
    except msgspec.ValidationError as error:
        where = f"{path}: " if path else ""
        raise SettingsError(f"{where}{error}", instead=_choices(str(error))) from None


def _choices(message: str) -> str:
    """What can be written at the place that a message names, where that is a list of words."""
    form: Any = Settings
    for field in message.partition("`$.")[2].rstrip("`").split("."):
        form = typing.get_type_hints(form).get(field) if form else None
    words = [word for word in typing.get_args(form) if isinstance(word, str)]
    if not words:
        return "see 'partage extender --help' and docs/extender.md"
    return f"choose from {', '.join(words)}"


def _file(path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(
            f"{path}: {error.strerror or error}", instead="name a readable TOML file"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: {error}", instead="write TOML") from error


def _environment(environ: Mapping[str, str]) -> dict[str, Any]:
    """What gpushare's manifests set; THREADNESS is taken and means nothing, for one is enough."""
    found: dict[str, Any] = {}
    if environ.get("PORT"):
        found["server.port"] = _number("PORT", environ["PORT"])
    if environ.get("LOG_LEVEL"):
        found["log_level"] = _level(environ["LOG_LEVEL"])
    if environ.get("THREADNESS"):
        _number("THREADNESS", environ["THREADNESS"])
    return found


def _level(text: str) -> str:
    level = {"warning": "warn"}.get(text.lower(), text.lower())
    known = typing.get_args(typing.get_type_hints(Settings)["log_level"])
    if level not in known:
        instead = f"choose from {', '.join(known)}"
        raise SettingsError(f"LOG_LEVEL={text!r} is not a level", instead=instead)
    return level


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise SettingsError(f"{name}={text!r} is not a number", instead=f"unset {name}, or mend it")
    return int(text)


def _set(written: dict[str, Any], name: str, value: Any) -> None:
    *path, last = name.split(".")
    for key in path:
        written = written.setdefault(key, {})
        if not isinstance(written, dict):
            raise SettingsError(f"{key} is not a table", instead=f"write [{key}]")
    written[last] = value
