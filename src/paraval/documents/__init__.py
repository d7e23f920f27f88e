"""Files that people write, read strictly: YAML, JSON and TOML, with the line of every mistake."""
