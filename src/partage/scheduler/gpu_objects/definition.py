"""The definition of GPU objects in the API server: whether it is installed, and in which form.

Where it is not, there is nothing to keep. Where ``status`` is a resource of its own (the definition
of the original Elastic GPU may have it so), a write of the object leaves the status as it was, and
the status is written apart.
"""

from __future__ import annotations

import msgspec

from partage.kube import api as kube
from partage.kube import discovery

VERSION = "elasticgpu.io/v1alpha1"
KIND = "GPU"
PATH = f"/apis/{VERSION}/gpus"


class Definition(msgspec.Struct, frozen=True):
    """How objects are to be written."""

    status_apart: bool


async def read(api: kube.Api) -> Definition | None:
    """The definition; None if it is not installed. Raises Forbidden if we may not list objects."""
    names = await discovery.served(api, VERSION)
    if "gpus" not in names or not await discovery.readable(api, [PATH]):
        return None
    return Definition("gpus/status" in names)
