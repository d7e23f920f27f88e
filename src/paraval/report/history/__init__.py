"""A suite over its runs: how its figures developed, and what changed between them."""
