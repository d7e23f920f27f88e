"""Graders, which judge outputs."""
