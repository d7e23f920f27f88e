"""A run's report, a module for each form of it."""
