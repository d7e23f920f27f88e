"""Cases: read from files, lists and functions, and checked."""
