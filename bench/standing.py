"""Standing: the extender's own HTTP server in a process of its own, over a world made by hand.

It is the application that ``partage extender`` serves, only its reflectors do not run. Prints its
port when it is ready. Two things are added for the benchmark: ``POST /change`` changes one node, as
a watch would between two questions, and the process ends with its standard input.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable

from aiohttp import web

from bench import manifests, worlds
from partage.kube import api, credentials
from partage.scheduler import running, settings


async def main(nodes: int, pods: int) -> None:
    """Serve until nobody listens any more."""
    extender = running.Extender(
        settings.Settings(), api.Api(credentials.Credentials("http://127.0.0.1:1"))
    )
    world = worlds.World(extender.mirror, manifests.names(nodes))
    world.fill(pods)
    for each in extender.reflectors.values():
        each.synced.set()
    app = extender.application()
    app.router.add_post("/change", _changer(world))
    worlds.settle_down()
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await runner.cleanup()


def _changer(world: worlds.World) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def change(_request: web.Request) -> web.Response:
        world.change()
        return web.Response()

    return change


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
