"""When each trial runs: a pure state machine, (state, event) -> instructions."""
