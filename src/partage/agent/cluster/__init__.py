"""What the agent writes to the API server: the node's cards, marks on pods, events."""
