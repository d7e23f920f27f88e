"""A model server on this machine: real protocols, simulated answers."""
