"""Performs what the scheduler decides, in one driver loop."""
