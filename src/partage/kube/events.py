"""Events: short texts for people, attached to an object in the cluster.

`kubectl describe` shows them. Each is written once: nobody needs the same words again every few
seconds, and the API server would have to keep them. An event that cannot be written is a line in
the log, and nothing depends on it.
"""

from __future__ import annotations

import datetime as dt
import logging
import secrets
from collections.abc import Callable

import msgspec

from partage.kube import api, errors

log = logging.getLogger(__name__)

NORMAL, WARNING = "Normal", "Warning"
_LONGEST = 1024  # characters of a message, by Kubernetes
_REMEMBERED = 4096


class About(msgspec.Struct, frozen=True):
    """The object that an event is about."""

    kind: str
    name: str
    uid: str
    namespace: str = ""
    api_version: str = "v1"


class Events:
    """Writes events of one component on one host."""

    def __init__(
        self, api: api.Api, component: str, host: str, *, now: Callable[[], dt.datetime]
    ) -> None:
        self._api = api
        self._source = {"component": component, "host": host}
        self._now = now
        self._written: dict[tuple[About, str, str], None] = {}

    async def tell(
        self, about: About, reason: str, message: str, *, kind: str = WARNING, news: bool = False
    ) -> None:
        """Attach a text to an object, unless that was done already.

        ``news`` says that it has become so again, and is told again.
        """
        key = (about, reason, message)
        if key in self._written and not news:
            return
        namespace = about.namespace or "default"
        try:
            await self._api.create(
                f"/api/v1/namespaces/{namespace}/events",
                self._event(about, namespace, reason, message[:_LONGEST], kind),
            )
        except errors.KubeError as error:
            log.warning(
                "the event %s of %s %s could not be written: %s; its text: %s",
                *(reason, about.kind, about.name, error.what, message),
            )
            return
        self._written[key] = None
        while len(self._written) > _REMEMBERED:
            del self._written[next(iter(self._written))]

    def forget(self, about: About) -> None:
        """What was written of an object may be written again."""
        for key in [key for key in self._written if key[0] == about]:
            del self._written[key]

    def _event(
        self, about: About, namespace: str, reason: str, message: str, kind: str
    ) -> dict[str, object]:
        moment = self._now().strftime("%Y-%m-%dT%H:%M:%SZ")
        involved = {"apiVersion": about.api_version, "kind": about.kind}
        involved |= {"name": about.name, "uid": about.uid}
        if about.namespace:
            involved["namespace"] = about.namespace
        return {
            "metadata": {
                "name": f"{about.name}.{secrets.token_hex(8)}",
                "namespace": namespace,
            },
            "involvedObject": involved,
            "reason": reason,
            "message": message,
            "type": kind,
            "source": self._source,
            "firstTimestamp": moment,
            "lastTimestamp": moment,
            "count": 1,
        }
