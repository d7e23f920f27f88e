"""The drawings of the page: plain records in, markup out; every text of others is escaped here."""
