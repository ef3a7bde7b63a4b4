"""The kubelet as Partage needs it: resources that it counts, and the containers that hold them.

::

    wire            the protocols' messages, generated from our own descriptions
    errors          the tree of what can go wrong
    device_lists    the list of device IDs, as a message
    plugin_sockets  names of sockets, and what dead agents left
    plugin_folder   the kubelet's folder, watched for restarts and other plugins by one poller
    channels        connections to the kubelet, and its refusals as errors
    serial_calls    one call per set of IDs at a time
    servicer        what the kubelet asks of a plugin
    registrations   whether the kubelet still counts on a plugin
    plugins         one resource: served, registered, and registered again
    checkpoint      the kubelet's own record of who holds what, with pod UIDs
    pod_resources   the same as its API tells it, with pod names

It knows neither cards nor grants: the caller knows what a device ID means, and what a container
gets for it.
"""
