"""What is put into the Python of a benchmark to profile it by line."""
