"""Targets: commands, Python functions, chat models and agents."""
