"""Submitted objects: pods, and workloads that make pods from a template.

A pod is decoded into what the dialects look at, and the few fields that are completed. The template
of a workload becomes such a pod; nothing else of a workload is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from partage.dialects import pods


class Metadata(pods.Metadata, frozen=True, rename="camel"):
    """Who the pod is; most pods have no name yet when they are submitted."""

    generate_name: str = ""


class Toleration(msgspec.Struct, frozen=True, omit_defaults=True):
    """A taint that does not keep a pod away."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


AffinityTerm = dict[str, Any]  # as it is written; it is compared as a whole, and not looked into


class PodAntiAffinity(msgspec.Struct, frozen=True):
    """Beside which pods a pod cannot be."""

    required: tuple[AffinityTerm, ...] = msgspec.field(
        default=(), name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(msgspec.Struct, frozen=True, rename="camel"):
    """Where a pod has to be; only what is added to is read of it."""

    pod_anti_affinity: PodAntiAffinity | None = None


class Spec(pods.Spec, frozen=True, rename="camel"):
    """What the pod runs, and what may be added to it."""

    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    runtime_class_name: str = ""


class Pod(pods.Pod, frozen=True, rename="camel"):
    """A pod as it was submitted."""

    metadata: Metadata = Metadata()
    spec: Spec = Spec()

    @property
    def shown(self) -> str:
        """Its name, as far as it has one."""
        return self.metadata.name or f"{self.metadata.generate_name}*"


class Unreadable(Exception):
    """An object that is not of the form that its kind has."""


class _Template(msgspec.Struct, frozen=True):
    metadata: Metadata = Metadata()
    spec: Spec = Spec()


class _Templated(msgspec.Struct, frozen=True, rename="camel"):
    template: _Template = _Template()


class _Workload(msgspec.Struct, frozen=True):
    spec: _Templated = _Templated()


class _Scheduled(msgspec.Struct, frozen=True, rename="camel"):
    job_template: _Workload = _Workload()


class _CronJob(msgspec.Struct, frozen=True):
    spec: _Scheduled = _Scheduled()


# The kinds that have a template, and the resources by which the API server knows them.
WORKLOADS: Mapping[str, tuple[str, str]] = {
    "Deployment": ("apps", "deployments"),
    "StatefulSet": ("apps", "statefulsets"),
    "DaemonSet": ("apps", "daemonsets"),
    "ReplicaSet": ("apps", "replicasets"),
    "ReplicationController": ("", "replicationcontrollers"),
    "Job": ("batch", "jobs"),
    "CronJob": ("batch", "cronjobs"),
}
_POD = msgspec.json.Decoder(Pod)
_WORKLOAD = msgspec.json.Decoder(_Workload)
_CRON_JOB = msgspec.json.Decoder(_CronJob)


def pod(raw: msgspec.Raw) -> Pod:
    """A pod that was submitted."""
    decoded: Pod = _decoded(_POD, raw)
    return decoded


def templated_pod(kind: str, raw: msgspec.Raw) -> Pod:
    """The pod that a workload would make, of which it is the owner."""
    if kind == "CronJob":
        template = _decoded(_CRON_JOB, raw).spec.job_template.spec.template
    else:
        template = _decoded(_WORKLOAD, raw).spec.template
    owners = (pods.Owner(kind=kind, uid=kind, controller=True),)  # the uid is not known yet
    metadata = msgspec.structs.replace(template.metadata, owner_references=owners)
    return Pod(metadata, template.spec)


def template_path(kind: str) -> str:
    """Where the template of a workload is, for messages."""
    return "spec.jobTemplate.spec.template" if kind == "CronJob" else "spec.template"


def _decoded(decoder: msgspec.json.Decoder[Any], raw: msgspec.Raw) -> Any:
    try:
        return decoder.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Unreadable(str(error)[:200]) from error
