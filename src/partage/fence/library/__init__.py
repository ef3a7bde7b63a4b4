"""The hook's library on disk: where it is, how it is found, and what it stands in front of."""
