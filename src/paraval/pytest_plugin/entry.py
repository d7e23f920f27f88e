"""What pytest loads at every start: flags, marks and fixtures; the rest only when asked for."""
