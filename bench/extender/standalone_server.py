"""Standalone server: the extender's own, in a process of its own, over a mirror filled by hand.

It is the application that ``partage extender`` serves, only its reflectors do not run. Prints its
port when it is ready. Three things are added for the benchmark: ``POST /change`` changes one node,
as a watch would between two questions, ``POST /nothing`` does nothing, and the process ends with
its standard input.
"""

from __future__ import annotations

import asyncio
import sys

from bench.large_cluster import filled_mirror, realistic_objects
from partage.kube import api
from partage.kube.auth import credentials
from partage.scheduler import http_server, service, settings
from partage.services import listener
from partage.services.http import messages, servers


async def main(nodes: int, pods: int) -> None:
    """Serve until nobody listens any more."""
    extender = service.Extender(
        settings.Settings(), api.Api(credentials.Credentials("http://127.0.0.1:1"))
    )
    filled = filled_mirror.FilledMirror(extender.mirror, realistic_objects.names(nodes))
    filled.fill(pods)
    for reflector in extender.reflectors.values():
        reflector.synced.set()
    extender.settled()
    site = extender.application()
    site.post("/change", _changer(filled))
    site.post("/nothing", lambda _request: messages.Answer(b"{}"))
    filled_mirror.freeze_garbage()
    address = listener.Address("127.0.0.1", 0)
    async with servers.at(address, site, http_server.LIMITS) as url:
        print(url.rpartition(":")[2], flush=True)
        await asyncio.to_thread(sys.stdin.read)


def _changer(filled: filled_mirror.FilledMirror) -> messages.Handler:
    def change(_request: messages.Request) -> messages.Answer:
        filled.change()
        return messages.Answer(b"")

    return change


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
