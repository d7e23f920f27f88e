"""Runs evaluations in parallel and tells the truth about them."""
