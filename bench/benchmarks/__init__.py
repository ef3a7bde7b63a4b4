"""What ``python -m bench NAME`` runs: a module for each benchmark, which says what it measures."""
