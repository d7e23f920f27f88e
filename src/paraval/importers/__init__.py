"""Suites and runs from the files of other programs: a module for each program."""
