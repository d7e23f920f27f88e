"""Strict reading of user-written YAML, JSON and TOML files, with the line of every mistake."""
