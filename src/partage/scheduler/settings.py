"""Settings of the extender: a TOML file, the environment over it, the command line over both.

Unknown keys and values out of range are refused, with the place they were written in. The
environment knows the four names that gpushare's manifests set.
"""

from __future__ import annotations

import ipaddress
import typing
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from partage.dialects import contract, model_speeds
from partage.scheduler import kubernetes_names
from partage.services import settings_file

DEFAULT_PORT = 39999  # gpushare's
ON_THE_WAY_S = 0.5  # of kube-scheduler's time, for request and answer
_ENOUGH = 16  # nodes to choose from; our own score decides among the first few anyway
_HOLD_S = 15.0
_BIND_S = 3.0
_UNITS_MIB = {"auto": contract.UNITS_MIB["GiB"], **contract.UNITS_MIB}

Seconds = Annotated[float, msgspec.Meta(gt=0, le=3600)]


class Server(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where to listen. With a certificate over TLS; with a client CA clients need certificates."""

    address: str = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = DEFAULT_PORT  # 0: any free one
    certificate: str = ""
    key: str = ""
    client_ca: str = ""


class Certificates(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Certificates of the extender's own making, in place of files that are given."""

    own: bool = False
    namespace: str = "kube-system"  # of the Service and the Secrets
    service: str = "partage-extender"
    names: tuple[str, ...] = ()  # of the host, and addresses, besides the Service's
    secret: str = "partage-extender-tls"  # the authority with its key, and what is served with
    scheduler_secret: str = "partage-scheduler-tls"  # for kube-scheduler

    @property
    def host_names(self) -> tuple[str, ...]:
        """The names and addresses that the certificate is for."""
        return (f"{self.service}.{self.namespace}.svc", *self.names)


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
    tflops: dict[str, Annotated[float, msgspec.Meta(gt=0)]] = {}  # of models; empty: our own table

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
    def dialects(self) -> contract.Settings:
        """What the dialects need to know."""
        return contract.Settings(
            memory_unit_mib=_UNITS_MIB[self.memory_unit],
            qgpu_max_cards=self.qgpu_max_cards,
            tflops=model_speeds.table(self.tflops) or model_speeds.SPEEDS,
        )


class Nodes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is written on nodes."""

    # Those of node modes. Without the admission webhooks nobody adds tolerations to pods, and then
    # a taint keeps away those, too, for which the node is.
    taints: bool = True


VERSION_ANNOTATION = "partage.dev/version"  # of the lease: what leads


class Leader(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which of several replicas decides. With one replica there is no need to ask."""

    elect: bool = False
    namespace: str = "kube-system"
    name: str = "partage-extender"
    lease_s: Annotated[float, msgspec.Meta(ge=10, le=600)] = 15.0
    renew_s: Seconds = 2.0


class Scheduler(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What kube-scheduler is configured with; no request says it."""

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
    certificates: Certificates = Certificates()
    cluster: Cluster = Cluster()
    decisions: Decisions = Decisions()
    nodes: Nodes = Nodes()
    leader: Leader = Leader()
    scheduler: Scheduler = Scheduler()
    binds: Binds = Binds()
    log_level: Literal["debug", "info", "warn", "error"] = "info"

    @property
    def certified(self) -> bool:
        """Whether clients have to show a certificate."""
        return self.certificates.own or bool(self.server.client_ca)

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
        raise settings_file.SettingsError(
            f"binds.timeout_s = {timeout_s:g} is too long: kube-scheduler gives up after {http_s}",
            instead=f"write at most {scheduler.patience_s:g}, or a longer httpTimeout for the "
            "extender in kube-scheduler's configuration, and the same here",
        )
    if chosen.hold_s < scheduler.http_timeout_s:
        raise settings_file.SettingsError(
            f"decisions.hold_s = {chosen.hold_s:g} is shorter than {http_s}: holds would end while "
            "their binds wait",
            instead="write more for hold_s, or leave it out",
        )
    if leader.elect and leader.renew_s > leader.lease_s / 3:
        raise settings_file.SettingsError(
            f"leader.renew_s = {leader.renew_s:g} is too long for leader.lease_s = "
            f"{leader.lease_s:g}: one renewal that fails would end the lease",
            instead=f"write at most {leader.lease_s / 3:g}",
        )
    if leader.elect and timeout_s + 1 > leader.lease_s - 2 * leader.renew_s:
        raise settings_file.SettingsError(
            f"binds.timeout_s = {timeout_s:g} is too long for leader.lease_s = {leader.lease_s:g}, "
            f"of which {leader.lease_s - 2 * leader.renew_s:g} s are left for a bind",
            instead="write less, or a longer lease",
        )


def load(path: str, environ: Mapping[str, str], flags: Mapping[str, Any]) -> Settings:
    """The settings in force; ``flags`` are dotted names with values that are not None."""
    over = {**_environment(environ), **flags}
    chosen = settings_file.load(Settings, path, over, _check_certificates)
    _check(chosen)
    return chosen


def _check_certificates(chosen: Settings, where: str) -> None:
    server = chosen.server
    if bool(server.certificate) != bool(server.key):
        raise settings_file.SettingsError(
            f"{where}[server]: only one of certificate and key is set", instead="set both, or none"
        )
    if server.client_ca and not server.certificate:
        raise settings_file.SettingsError(
            f"{where}[server]: client_ca works over TLS only", instead="set certificate and key"
        )
    if chosen.certificates.own and server.certificate:
        raise settings_file.SettingsError(
            f"{where}[certificates] own is true, and [server] names files",
            instead="remove certificate, key and client_ca, or set own = false",
        )
    _check_own(chosen.certificates, where)


def _check_own(own: Certificates, where: str) -> None:
    if own.secret == own.scheduler_secret:
        raise settings_file.SettingsError(
            f"{where}[certificates]: secret and scheduler_secret are the same",
            instead="give two names: kube-scheduler must not have the key of the authority",
        )
    for field in ("namespace", "service", "secret", "scheduler_secret"):
        _check_name(f"{where}[certificates] {field}", getattr(own, field))
    for name in own.names:
        _check_host(f"{where}[certificates] names", name)


def _check_name(what: str, name: str) -> None:
    if not kubernetes_names.named(name):
        raise settings_file.SettingsError(
            f"{what}: {name!r} is not a name that Kubernetes allows",
            instead="write small letters, digits, dots and hyphens",
        )


def _check_host(what: str, name: str) -> None:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        if not kubernetes_names.named(name):
            raise settings_file.SettingsError(
                f"{what}: {name!r} is neither the name of a host nor an address",
                instead="write names in small letters, or addresses such as 10.0.0.1",
            ) from None


def _environment(environ: Mapping[str, str]) -> dict[str, Any]:
    """What gpushare's manifests set; THREADNESS is accepted and has no effect."""
    values: dict[str, Any] = {}
    if environ.get("PORT"):
        values["server.port"] = settings_file.number("PORT", environ["PORT"])
    if environ.get("LOG_LEVEL"):
        values["log_level"] = _level(environ["LOG_LEVEL"])
    if environ.get("THREADNESS"):
        settings_file.number("THREADNESS", environ["THREADNESS"])
    return values


def _level(text: str) -> str:
    level = {"warning": "warn"}.get(text.lower(), text.lower())
    levels = typing.get_args(typing.get_type_hints(Settings)["log_level"])
    if level not in levels:
        instead = f"choose from {', '.join(levels)}"
        raise settings_file.SettingsError(f"LOG_LEVEL={text!r} is not a level", instead=instead)
    return level
