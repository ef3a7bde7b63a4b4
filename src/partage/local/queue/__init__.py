"""The queue of one machine: which programs wait, which is next, and what the others wait for."""
