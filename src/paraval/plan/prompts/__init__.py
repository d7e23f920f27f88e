"""Prompts: texts in the suite or in files, axes whose values are such files, and what would send
something that the author did not mean.
"""
