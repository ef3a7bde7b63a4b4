"""What cards a machine has and what they do: one door to NVML, and measurements."""
