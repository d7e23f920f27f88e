"""A run from its plan to its report: what it works with, how it goes on, when it ends."""
