"""The course of a race, as a pure state machine: who is tested and measured next, and who wins."""
