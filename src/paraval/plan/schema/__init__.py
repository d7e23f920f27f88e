"""The keys of a suite file, as its author writes them."""
