"""Runs git safely: no hooks, no filters, no configuration but ours.

A user's repository is only read (`repositories`, `snapshots`); the engine writes to repositories of
its own that borrow the user's objects (`alternates`). Everything goes through `run_git`. `folders`
reads folders that are not in a repository.
"""
