"""What a node needs for jobs: the table of cards, the fence's files."""
