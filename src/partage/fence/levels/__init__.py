"""The levels of fences: what each one holds, which ones this machine has, and each one at work."""
