"""Measures speed: runs benchmarks one at a time on a quiet machine."""
