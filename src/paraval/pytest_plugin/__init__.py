"""The face that pytest sees: tests that wait, side by side in one process, each still a test.

`plugin` is what pytest loads at every start, and is light. The rest is loaded when it is asked for.
"""
