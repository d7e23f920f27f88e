"""What it means: summaries, tables, files."""
