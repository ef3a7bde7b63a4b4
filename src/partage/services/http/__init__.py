"""HTTP/1.1 for a few paths, with as little work for each request as there can be.

::

    messages      what is asked and what is answered, and an answer as bytes
    routes        which handler answers what
    allowances    how much and how long; the permits for large bodies
    parser        bytes to requests, within the limits
    connections   one client: its requests in order, its answers, its end
    servers       all clients; an address; the end of everything

A handler that answers at once is called in the step in which its request came, without a task.
Parsing is llhttp's (``httptools``); docs/decisions/0008-http.md has the reasons and the numbers.
There is no TLS, no compression and no streaming in here: asyncio does the first, nobody needs the
others.
"""
