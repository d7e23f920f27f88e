"""Programs and functions of users that generate, repair and refine candidates."""
