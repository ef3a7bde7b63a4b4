"""Settings of the admission webhooks: a TOML file, and the command line over it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from partage.admission import reviews, webhooks
from partage.dialects import contract, model_speeds
from partage.services import settings_file

DEFAULT_PORT = 9443
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_UNITS_MIB = {"auto": contract.UNITS_MIB["GiB"], **contract.UNITS_MIB}


class Server(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where to listen; always over TLS."""

    address: str = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = DEFAULT_PORT  # 0: any free one


class Certificate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to serve with: files that were given, or our own in a Secret of the namespace."""

    certificate: str = ""
    key: str = ""
    secret: str = f"{webhooks.NAME}-tls"


class Service(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the API server reaches the webhooks."""

    name: str = webhooks.NAME
    namespace: str = "kube-system"
    names: tuple[str, ...] = ()  # of the host, besides the Service's, that the certificate is for


class Cluster(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How to reach the API server; empty: as kubectl does, or as a pod does."""

    kubeconfig: str = ""
    context: str = ""


class Pods(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is done with pods."""

    runtime_class: str = ""  # for pods with cards that name none
    scheduler_name: str = ""  # for pods with cards that name none, or the default one
    # What no card of the cluster can hold: "warn" where larger nodes are made on demand.
    larger_than_any_card: Literal["refuse", "warn"] = "refuse"
    memory_unit: Literal["auto", "GiB", "MiB"] = "auto"  # of aliyun.com/gpu-mem
    qgpu_max_cards: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 2
    tflops: dict[str, Annotated[float, msgspec.Meta(gt=0)]] = {}  # of models; empty: our own table


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All of it."""

    server: Server = Server()
    certificate: Certificate = Certificate()
    service: Service = Service()
    cluster: Cluster = Cluster()
    pods: Pods = Pods()
    log_level: Literal["debug", "info", "warn", "error"] = "info"

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the host that our own certificate is for."""
        service = webhooks.Service(self.service.name, self.service.namespace)
        return (*service.names, *self.service.names)

    @property
    def options(self) -> reviews.Options:
        """What reviews go by."""
        return reviews.Options(
            runtime_class=self.pods.runtime_class,
            scheduler_name=self.pods.scheduler_name,
            refuse_never=self.pods.larger_than_any_card == "refuse",
        )

    @property
    def dialects(self) -> contract.Settings:
        """What the dialects need to know."""
        return contract.Settings(
            memory_unit_mib=_UNITS_MIB[self.pods.memory_unit],
            qgpu_max_cards=self.pods.qgpu_max_cards,
            tflops=model_speeds.table(self.pods.tflops) or model_speeds.SPEEDS,
        )


def load(path: str, flags: Mapping[str, Any]) -> Settings:
    """The settings in force; ``flags`` are dotted names with values that are not None."""
    return settings_file.load(Settings, path, flags, _check)


def _check(chosen: Settings, where: str) -> None:
    given = chosen.certificate
    if bool(given.certificate) != bool(given.key):
        raise settings_file.SettingsError(
            f"{where}[certificate]: only one of certificate and key is set",
            instead="set both, or none: then Partage makes its own",
        )
    scheduler = chosen.pods.scheduler_name
    if scheduler and not _NAME.fullmatch(scheduler):
        raise settings_file.SettingsError(
            f"{where}pods.scheduler_name = {scheduler!r} cannot be the name of a scheduler",
            instead="write small letters, digits, dots and hyphens",
        )
