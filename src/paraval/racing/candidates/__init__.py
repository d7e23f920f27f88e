"""Candidates: where they come from, and how each becomes a tree of git."""
