"""Plans: which steps take a cluster over from which system, from what was read of it alone."""
