"""What a race came to, in every form."""
