"""The course of a race as a pure state machine: what to test and measure next, and who wins."""
