"""Models over HTTP: an adapter for each protocol, and a client that caches and prices."""
