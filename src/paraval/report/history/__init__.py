"""A suite over its runs: how its figures went, and what was changed between them."""
