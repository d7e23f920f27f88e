"""Whether a candidate does what the baseline does: its tests, and what they print."""
