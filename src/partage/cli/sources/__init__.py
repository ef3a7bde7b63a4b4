"""Where live numbers come from: an agent, a folder of fences, or this machine."""
