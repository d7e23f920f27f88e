"""The HTML page of a run: one file, no script, no network access."""
