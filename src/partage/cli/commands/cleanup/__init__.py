"""``partage cleanup``: what is left of Partage in a cluster and on its nodes, and its removal."""
