"""The pure heart: cards, demands, grants and the decisions made over them.

Nothing here reads a clock, a file or a socket, and nothing draws random numbers: time and facts are
arguments. That is what lets one implementation of "does it fit" serve the Kubernetes extender,
``partage run``, the simulator and the explanations given to people.
"""
