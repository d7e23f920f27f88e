"""Child process trees: start, watch, bound, end. The only place that spawns."""
