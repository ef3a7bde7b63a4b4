"""The simulator: how well the policies of this package pack a recorded workload."""
