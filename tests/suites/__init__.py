"""Test suites that others wrote, run plainly and side by side: `make test-suites`."""
