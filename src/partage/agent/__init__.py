"""The agent: the job on each GPU node."""
