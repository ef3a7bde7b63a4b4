"""What can go wrong between Partage and a Kubernetes API server.

::

    KubeError
    ├── CredentialsError        kubeconfig or in-cluster credentials cannot be used
    ├── Unreachable             no answer; `sent` tells if the request may have arrived
    ├── BadAnswer               an answer that cannot be read: not JSON, or other fields
    │   └── TooLong             more bytes than are accepted
    └── ApiError                the server says no, in a Status
        ├── Unauthorized        401
        ├── Forbidden           403
        ├── NotFound            404
        ├── Conflict            409, also for "already exists"
        ├── Gone                410, the version asked for is too old
        ├── Invalid             422
        ├── TooManyRequests     429, with `retry_after_s`
        └── ServerError         5xx: whether a write happened is unknown

Errors are named by meaning and not by transport: aiohttp's own are chained as the cause. A message
names the verb, the path, and the server's reason and words. It never holds a header or the content
of a credential.
"""

from __future__ import annotations

import msgspec

from partage.core import errors
from partage.kube import wire

_LONGEST_TEXT = 300  # characters quoted from an answer that is not a Status


class KubeError(errors.PartageError):
    """Anything that went wrong with the API server, or before reaching it."""

    code = "kube"


class CredentialsError(KubeError):
    """Credentials that are missing or cannot be used."""

    code = "kube-credentials"


class Unreachable(KubeError):
    """There was no answer; a write that was ``sent`` may have happened all the same."""

    code = "kube-unreachable"

    def __init__(self, what: str, *, sent: bool, instead: str = "") -> None:
        self.sent = sent
        super().__init__(what, instead=instead)


class BadAnswer(KubeError):
    """An answer that is not what the API promises."""

    code = "kube-bad-answer"


class TooLong(BadAnswer):
    """An answer with more bytes than are accepted."""

    code = "kube-too-long"


class ApiError(KubeError):
    """The server refused; the subclasses tell the cases that callers care about."""

    code = "kube-api"

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        *,
        request: str = "",
        retry_after_s: float = 0.0,
    ) -> None:
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after_s = retry_after_s
        answer = f"{status} {reason}".rstrip()
        super().__init__(": ".join(part for part in (request, answer, message) if part))


class Unauthorized(ApiError):
    """The server does not accept the login."""

    code = "kube-unauthorized"


class Forbidden(ApiError):
    """The server accepts the login, and the user does not have the right."""

    code = "kube-forbidden"


class NotFound(ApiError):
    """There is no such object, or no such resource; or there is no API server at that address."""

    code = "kube-not-found"

    @property
    def certain(self) -> bool:
        """Whether an API server says so; a proxy that knows nothing answers 404, too."""
        return self.reason == "NotFound"


class Conflict(ApiError):
    """The object changed meanwhile, or is there already."""

    code = "kube-conflict"


class Gone(ApiError):
    """The version or the page asked for is no longer kept: list again."""

    code = "kube-gone"


class Invalid(ApiError):
    """The object or the parameters break a rule."""

    code = "kube-invalid"


class TooManyRequests(ApiError):
    """The server asks for a pause of ``retry_after_s``."""

    code = "kube-too-many-requests"


class ServerError(ApiError):
    """The server failed; a write may have happened all the same."""

    code = "kube-server"


def from_status(status: wire.Status, *, request: str, retry_after_s: float = 0.0) -> ApiError:
    """The error of a Status that came for a request such as ``GET /api/v1/nodes``."""
    kind = ServerError if status.code >= 500 else _KINDS.get(status.code, ApiError)
    return kind(
        status.code, status.reason, status.message, request=request, retry_after_s=retry_after_s
    )


def from_answer(code: int, body: bytes, *, request: str, retry_after_s: float = 0.0) -> ApiError:
    """The error of an answer by its HTTP code; proxies answer with something else than a Status."""
    try:
        status = msgspec.json.decode(body, type=wire.Status)
    except wire.UNREADABLE:
        text = body[:_LONGEST_TEXT].decode(errors="replace")
        status = wire.Status(message=" ".join(text.split()))
    status = wire.Status(code, status.reason, status.message)
    return from_status(status, request=request, retry_after_s=retry_after_s)


_KINDS: dict[int, type[ApiError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}
