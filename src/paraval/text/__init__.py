"""Words, numbers and tables for people: the same on terminals, in Markdown and on pages."""
