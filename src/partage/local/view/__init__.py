"""This machine at one moment, for people who look."""
