"""WHAT: suite files become an ordered plan of trials."""
