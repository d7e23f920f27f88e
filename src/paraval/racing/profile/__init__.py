"""Where the winner spends its time, line by line."""
