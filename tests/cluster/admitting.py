"""Admission on a control plane: the webhooks with the rights of their manifest, and asked."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from cluster import api, objects
from cluster.control_plane.control_plane import ControlPlane
from cluster.partage_processes import admission_process
from partage.admission import webhooks
from tests.cluster import installing, making, service_accounts

SHARE = "partage.dev/memory-mib"
_RIGHTS = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")


@contextlib.contextmanager
def admission(
    plane: ControlPlane, folder: Path, *, pods: str = ""
) -> Iterator[admission_process.Admission]:
    """Webhooks that the API server asks; as long as the block lasts, whether they run or not."""
    written = installing.manifests("admission.yaml")
    installing.apply(plane, [made for made in written if made["kind"] in _RIGHTS])
    kubeconfig = folder / "admission.kubeconfig"
    kubeconfig.write_text(service_accounts.kubeconfig(plane, webhooks.NAME))
    process = admission_process.Admission(folder, kubeconfig, pods=pods)
    for configuration in webhooks.configurations(webhooks.Service(url=process.url)):
        plane.client.create(configuration)
    try:
        process.start()
        asked(plane, process)
        yield process
    finally:
        process.close()
        for kind in webhooks.KINDS:
            plane.client.delete(kind, webhooks.NAME, "")


def asked(plane: ControlPlane, process: admission_process.Admission) -> None:
    """Wait until the webhooks are asked, and believed."""
    making.eventually(lambda: _is_asked(plane), why=process.log)


def _is_asked(plane: ControlPlane) -> bool:
    pod = objects.pod("p", {SHARE: 1})
    try:
        tried = plane.client.call("POST", f"{api.path('Pod')}?dryRun=All", pod)
    except api.ApiError as error:
        if "failed calling webhook" not in str(error):
            raise
        return False
    return "partage.dev/cards" in tried["spec"]["containers"][0]["resources"]["limits"]
