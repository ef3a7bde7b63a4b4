"""What runs until it is told to stop, and has an address: the extender, the agent.

::

    listening   an application at an address
    stopping    work that ends by a signal, or by what goes wrong in it

It knows neither what is served nor who asks.
"""
