"""Taking over a cluster from another system, step by step, and giving it back."""
