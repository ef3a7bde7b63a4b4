"""What runs until it is told to stop, and has an address: the extender, the agent.

::

    listening   an application at an address
    stopping    work that ends by a signal, or by what goes wrong in it
    http        a server for a few paths that costs next to nothing

It knows neither what is served nor who asks.
"""
