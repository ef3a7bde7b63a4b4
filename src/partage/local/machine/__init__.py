"""The cards of this machine, real or simulated, and the processes on them."""
