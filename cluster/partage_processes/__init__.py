"""Partage's own long-running commands, as processes beside the control plane."""
