"""Connections to the kubelet, and its refusals as errors of ours.

A connection is made for each question and closed after it. Questions are rare, and a connection
that is kept would have to be watched: gRPC shares it inside the process, and after the kubelet
restarted it fails for a while without being tried.
"""

from __future__ import annotations

from pathlib import Path

import grpc
from grpc import aio

from partage.kubelet import errors

_NO_ANSWER = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})


def opened(socket: Path, *, largest_bytes: int) -> aio.Channel:
    """A channel, to be used in ``async with``; answers may be as large as ``largest_bytes``."""
    return aio.insecure_channel(
        f"unix:{socket}",
        options=(
            # Without it gRPC names the path of the socket, which strict servers refuse.
            ("grpc.default_authority", "localhost"),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.max_receive_message_length", largest_bytes),
        ),
    )


def failure(error: aio.AioRpcError, what: str, socket: Path) -> errors.KubeletError:
    """The error of a call that failed; ``what`` is the thing that was not done."""
    details = error.details() or "no reason given"
    if error.code() in _NO_ANSWER:
        return errors.Absent(
            f"{what}: the kubelet does not answer at {socket} ({details})",
            instead="check that the kubelet runs (systemctl status kubelet)",
        )
    return errors.Refused(
        f"{what}: the kubelet answers {error.code().name}: {details}",
        instead="see the kubelet's log (journalctl -u kubelet)",
    )
