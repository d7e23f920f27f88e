"""Texts with fields that are filled in for each attempt: plain, for a shell, and Jinja."""
