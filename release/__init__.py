"""A release: all that is published of a version, made in one folder, and checked there."""
