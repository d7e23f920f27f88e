"""A run's results in figures: rates, costs, what the attempts did."""
