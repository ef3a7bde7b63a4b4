"""The families of request names, a module each."""
