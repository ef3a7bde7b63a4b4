"""Why a pod was not bound, in words: what happened, to which pod, and what happens next.

kube-scheduler writes these texts into an event of the pod, where people read them who know neither
the API of Kubernetes nor its clients.
"""

from __future__ import annotations

from partage.kube import errors as kube_errors
from partage.scheduler import wire
from partage.scheduler.binds import bind_states

BUSY = (
    "the API server is busy ({reason}); the pod's GPUs stay reserved, and kube-scheduler "
    "tries again"
)


def not_bound(error: kube_errors.KubeError, args: wire.BindingArgs) -> str:
    """A Binding was sent, or could not be sent."""
    if isinstance(error, kube_errors.TooManyRequests):
        return BUSY.format(reason="it turned the request away")
    if isinstance(bind_states.outcome(error, 0.0), bind_states.Declined):
        what = f"{pod(args)} was not bound to node {args.node}"
        return f"{what}: {_reason(error)}; kube-scheduler tries again"
    return (
        f"{_reason(error)}, so it is not known yet whether {pod(args)} is bound to node "
        f"{args.node}; Partage asks until it is known, and its GPUs stay reserved"
    )


def not_read(error: Exception, args: wire.BindingArgs) -> str:
    """The pod could not be read before it is bound."""
    match error:
        case kube_errors.NotFound(certain=True):
            return f"there is no {pod(args)} any more"
        case kube_errors.ApiError(status=status, message=message):
            why = f"refused to show {pod(args)} (HTTP {status}: {message})"
        case _:
            why = f"did not answer when it was asked for {pod(args)}"
    return f"the API server {why}, so the pod cannot be bound now; kube-scheduler tries again"


def pod(args: wire.BindingArgs) -> str:
    """The pod in a text."""
    return f"pod {args.pod_namespace}/{args.pod_name}"


def _reason(error: kube_errors.KubeError) -> str:
    match error:
        case kube_errors.Unreachable(sent=False):
            return "there is no connection to the API server"
        case kube_errors.ApiError(status=status, message=message):
            return f"the API server answered HTTP {status} ({message})"
        case kube_errors.Unreachable() | kube_errors.BadAnswer():
            return "the API server did not answer"
        case _:
            return str(error)
