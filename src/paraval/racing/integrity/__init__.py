"""What candidates must not touch, and whether they did."""
