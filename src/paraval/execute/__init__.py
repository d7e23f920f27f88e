"""DOING: one driver loop that performs what the scheduler says."""
