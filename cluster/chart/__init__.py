"""The chart: helm run on it, and the plain manifests that are made from it."""
