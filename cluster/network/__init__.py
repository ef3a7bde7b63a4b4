"""The network of pods: a network namespace between the nodes, addresses, and names of Services."""
