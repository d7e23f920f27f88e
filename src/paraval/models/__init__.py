"""Models over HTTP: one adapter a protocol, one client that caches, prices and keeps keys secret."""
