"""A run from its plan to its report: its resources, its progress, its end."""
