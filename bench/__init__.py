"""Benchmarks: ratios against a floor that is measured in the same run.

Machines differ and are noisy, so no number here is a time limit: each line says how many times a
floor something costs, and what we aim at. ``python -m bench [NAME...]``.
"""
