"""Is one better than the other, by how much, and how sure is that: two sides, case by case."""
