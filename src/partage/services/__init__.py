"""What a long-running program with an address needs: the extender, the agent.

::

    listener    an application at an address
    lifetime    work that ends by a signal, or by a failure in it
    certificates, serving_context    an authority of our own, and what is served with it
    settings_file    settings in TOML
    http        a server for a few paths that costs next to nothing

It knows neither what is served nor which clients ask.
"""
