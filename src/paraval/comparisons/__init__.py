"""Which runs, files and parts of them are compared, by the names that users have for them."""
