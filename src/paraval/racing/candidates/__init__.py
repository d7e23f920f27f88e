"""Candidates: where they come from, and how each becomes a git tree."""
