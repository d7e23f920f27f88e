"""What runs: commands and Python functions."""
