"""What is seen of a run or a race while it goes on."""
