"""Binds that are under way: their states, their doubts, and how many are sent at once."""
