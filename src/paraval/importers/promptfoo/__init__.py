"""promptfoo's configs: `config` reads one, with its files, models and assertions."""
