"""Race files: their keys, and how they are read."""
