"""Claims of Elastic GPU: the objects, what they ask for, and their definitions; all pure."""
