"""How an output is judged."""
