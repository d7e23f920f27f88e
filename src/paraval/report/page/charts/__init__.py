"""The charts of the page: plain records in, markup out; untrusted text is escaped here."""
