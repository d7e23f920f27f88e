"""Live progress of runs and races."""
