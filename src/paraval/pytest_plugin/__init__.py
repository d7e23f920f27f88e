"""The pytest plugin: tests that wait run concurrently in one process, each still an ordinary test.

pytest loads the lightweight `plugin` module at every start. The rest is loaded on demand.
"""
