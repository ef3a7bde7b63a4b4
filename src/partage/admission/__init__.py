"""Admission: what pods are refused, completed and warned of when they are submitted."""
