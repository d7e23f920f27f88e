"""How fast candidates are: benchmarks, one at a time on a quiet machine."""
