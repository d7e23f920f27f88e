"""What figures mean: intervals, tests, power and early stops. Pure arithmetic on numbers."""
