"""Checks that candidates do not touch what they must not."""
