"""How things are measured and shown: lines with aims, times, metrics, the state of pods."""
