"""Checks that a candidate behaves like the baseline: its tests, and what they print."""
