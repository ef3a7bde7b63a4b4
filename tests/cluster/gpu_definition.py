"""The definition of GPU objects on a control plane: as it is shipped, or a small one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from cluster import api
from cluster.control_plane.control_plane import ControlPlane
from tests.cluster import installing, making

NAME = "gpus.elasticgpu.io"
GPUS = "/apis/elasticgpu.io/v1alpha1/gpus"
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def shipped() -> api.Object | None:
    """That of deploy/claims.yaml; None while there is no such file."""
    if not (installing.DEPLOY / "claims.yaml").exists():
        return None
    made = installing.manifests("claims.yaml")
    return next(manifest for manifest in made if manifest["metadata"]["name"] == NAME)


@contextlib.contextmanager
def installed(plane: ControlPlane, definition: api.Object) -> Iterator[None]:
    """A control plane on which GPU objects are defined, until the end."""
    plane.client.call("POST", _DEFINITIONS, definition)
    try:
        making.eventually(lambda: _is_served(plane))
        yield
    finally:
        plane.client.call("DELETE", f"{_DEFINITIONS}/{NAME}")
        making.eventually(lambda: not _is_served(plane))


def _is_served(plane: ControlPlane) -> bool:
    try:
        plane.client.call("GET", GPUS)
    except api.ApiError:
        return False
    return True
