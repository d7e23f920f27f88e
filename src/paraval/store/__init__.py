"""What happened, durable."""
