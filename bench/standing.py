"""Standing: the extender's own HTTP server in a process of its own, over a world made by hand.

It is the application that ``partage extender`` serves, only its reflectors do not run. Prints its
port when it is ready. Three things are added for the benchmark: ``POST /change`` changes one node,
as a watch would between two questions, ``POST /nothing`` does nothing, and the process ends with
its standard input.
"""

from __future__ import annotations

import asyncio
import sys

from bench import manifests, worlds
from partage.kube import api, credentials
from partage.scheduler import running, serving, settings
from partage.services import listening
from partage.services.http import messages, servers


async def main(nodes: int, pods: int) -> None:
    """Serve until nobody listens any more."""
    extender = running.Extender(
        settings.Settings(), api.Api(credentials.Credentials("http://127.0.0.1:1"))
    )
    world = worlds.World(extender.mirror, manifests.names(nodes))
    world.fill(pods)
    for each in extender.reflectors.values():
        each.synced.set()
    extender.settled()
    site = extender.application()
    site.post("/change", _changer(world))
    site.post("/nothing", lambda _request: messages.Answer(b"{}"))
    worlds.settle_down()
    address = listening.Address("127.0.0.1", 0)
    async with servers.at(address, site, serving.LIMITS) as url:
        print(url.rpartition(":")[2], flush=True)
        await asyncio.to_thread(sys.stdin.read)


def _changer(world: worlds.World) -> messages.Handler:
    def change(_request: messages.Request) -> messages.Answer:
        world.change()
        return messages.Answer(b"")

    return change


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
