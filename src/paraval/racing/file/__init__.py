"""Race files: every key, and how one is read."""
