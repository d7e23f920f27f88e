"""Races: candidate changes are tested in parallel, those that pass are measured one at a time.

request: what the user asks for. steps: what the engine runs for it, one trial each. findings: what
a step found. course: which steps come next, as pure decisions. standings: the result of each
candidate. The engine does the rest: scheduler, driver, store, workspaces, processes.
"""
