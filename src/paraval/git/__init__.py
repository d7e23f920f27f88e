"""git as the engine runs it: no hooks, no filters, no one's configuration but ours.

A user's repository is only read (`repositories`, `snapshots`); what the engine writes goes into
repositories of its own that borrow the user's objects (`alternates`). All of it runs by `run_git`.
What a folder that is in no repository holds is told by `folders`.
"""
