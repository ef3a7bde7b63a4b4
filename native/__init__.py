"""The two parts in C, and what builds them: `fence` (the product) and `simcuda` (an instrument)."""
