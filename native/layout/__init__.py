"""The memory that the fence and the node side share: described once, written in C and in Python."""
