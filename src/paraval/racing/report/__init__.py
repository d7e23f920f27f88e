"""The result of a race, in every format."""
