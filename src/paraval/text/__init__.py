"""Words, numbers and tables, the same on terminals, in Markdown and on pages."""
