"""The pure heart: cards, demands, grants and the decisions made over them.

Nothing here reads a clock, a file or a socket, and nothing draws random numbers: time and facts are
arguments. That is what lets one implementation of "does it fit" serve every place that decides,
simulates or explains.
"""
