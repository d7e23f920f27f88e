"""git as the engine runs it: no hooks, no filters, no one's configuration but ours."""
