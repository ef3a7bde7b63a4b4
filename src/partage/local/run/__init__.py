"""``partage run``: from a request to the program behind its fence; and ``resize``."""
