"""Failures of connections as errors of ours: the request, the server, the reason, the next step.

The texts of the libraries below are for programmers: they show objects in memory, and call the same
failure by several names. They stay in the chain of causes.
"""

from __future__ import annotations

import os
import socket
import ssl
import urllib.parse

import aiohttp

from partage.kube import errors


def not_connected(request: str, server: str, error: BaseException) -> errors.Unreachable:
    """There is no connection, so nothing was sent."""
    cause = _cause(error)
    untrusted = isinstance(cause, ssl.SSLCertVerificationError)
    return errors.Unreachable(
        f"{request}: no connection to {shown(server)}: {_reason(cause)}",
        sent=False,
        instead="check the certificate-authority and the server of the kubeconfig"
        if untrusted
        else "check the server's address and that it runs",
    )


def not_answered(request: str, server: str) -> errors.Unreachable:
    """The request was sent, and its time is over."""
    return errors.Unreachable(
        f"{request}: {shown(server)} did not answer in time",
        sent=True,
        instead="check whether the API server is overloaded, and try again",
    )


def broken(request: str, server: str, error: BaseException) -> errors.Unreachable:
    """The connection broke before the whole answer was there."""
    return errors.Unreachable(
        f"{request}: the connection to {shown(server)} broke: {_reason(_cause(error))}",
        sent=True,
        instead="check that the API server still runs, and try again",
    )


def shown(server: str) -> str:
    """The address of a server, without a password that may be written in it."""
    parts = urllib.parse.urlsplit(server)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _cause(error: BaseException) -> BaseException:
    """What aiohttp wraps, if it wraps something."""
    wrapped = getattr(error, "certificate_error", None) or getattr(error, "os_error", None)
    return error if wrapped is None else wrapped


def _reason(cause: BaseException) -> str:
    match cause:
        case ssl.SSLCertVerificationError(verify_message=message):
            return f"its certificate is not trusted ({message.rstrip('.')})"
        case ssl.SSLError(reason=reason):
            return f"TLS failed ({(reason or 'no reason').replace('_', ' ').lower()})"
        case socket.gaierror():
            return "its host name is not known"
        case TimeoutError():
            return "none was made in time"
        case OSError(errno=int(number)):
            return os.strerror(number)
        case ConnectionError() | aiohttp.ServerDisconnectedError():
            return "the server closed it"
        case OSError():
            return "none of its addresses accepts it"
        case aiohttp.ClientPayloadError():
            return "the answer is incomplete"
        case _:
            return "the answer is not HTTP"
