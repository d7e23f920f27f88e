"""WHEN: a pure state machine; (state, event) -> instructions."""
