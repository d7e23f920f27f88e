"""The race: candidate changes tested side by side, those that pass measured alone, a winner.

request: what a person asks for. steps: what the engine runs for it, one trial each. findings: what
a step found. course: which steps come next, decided without doing anything. standings: how each
candidate stands in the end. The engine's own parts do the rest: scheduler, driver, store,
workspaces, processes.
"""
