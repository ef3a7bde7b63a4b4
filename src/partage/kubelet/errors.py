"""What can go wrong between Partage and the kubelet of its node.

::

    KubeletError
    ├── Absent          nobody answers, or a file of the kubelet is not there
    ├── Refused         the kubelet says no
    ├── BadListing      device IDs that the kubelet could not be told
    ├── BadSocket       a socket of ours cannot be made
    └── BadCheckpoint   the kubelet's checkpoint cannot be read
"""

from __future__ import annotations

from partage.core import errors


class KubeletError(errors.PartageError):
    """Anything that went wrong with the kubelet, or before reaching it."""

    code = "kubelet"


class Absent(KubeletError):
    """The kubelet does not answer, or has not written the file yet."""

    code = "kubelet-absent"


class Refused(KubeletError):
    """The kubelet answered with an error."""

    code = "kubelet-refused"


class BadListing(KubeletError):
    """A list of device IDs that would not go through."""

    code = "kubelet-bad-listing"


class BadSocket(KubeletError):
    """A socket that cannot be made in the kubelet's folder."""

    code = "kubelet-bad-socket"


class BadCheckpoint(KubeletError):
    """A checkpoint that is not what the kubelet writes, or may not be read."""

    code = "kubelet-bad-checkpoint"
