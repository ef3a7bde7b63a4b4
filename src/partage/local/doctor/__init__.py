"""``partage doctor``: checks of this machine, and what they found."""
