"""Runs attempts on the nodes of a cluster: one host on each node, and everything else here."""
