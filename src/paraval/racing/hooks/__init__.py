"""The user's programs and functions that generate, repair and refine candidates."""
