"""Does a pod fit on a node, and on which of its cards."""
