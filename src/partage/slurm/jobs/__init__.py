"""Jobs: what they have, which processes are theirs, what they used."""
