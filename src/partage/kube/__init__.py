"""The Kubernetes API as Partage needs it: credentials, a few verbs, watching, leading.

A thin client of our own on aiohttp and msgspec, because a scheduler must know 50,000 pods without
keeping 50,000 pods: every object is decoded straight into a struct with the fields one job reads,
handed on, and forgotten.

::

    wire                 lists, watch events and refusals as the server writes them
    errors               the tree of what can go wrong
    connection_failures  failures of connections as such errors
    auth/kubeconfig      kubeconfig files, merged as kubectl merges them
    auth/tls             certificates into an SSL context
    auth/logins          the login: token, token file, password, certificate, exec plugin
    auth/credentials     where the server is, and all of the above found and put together
    open_sockets         the sockets of a client, closed with it
    stream_lines         a byte stream cut into lines
    poster               POST requests, on connections of their own
    api                  the verbs
    discovery            which resources are served
    backoff              how long to wait after a failure
    events               short texts for people, attached to an object
    reflection/intake    objects of a list or a watch into a sink
    reflection/reflector keeps a sink equal to a collection, for ever
    lease                which of several processes leads
    secrets              certificates that several processes share

It does not know any other kind of object; what a pod or a node looks like is the caller's business.
"""
