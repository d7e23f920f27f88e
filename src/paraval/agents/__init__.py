"""Agent programs: one module each, behind the interface in `program`; `catalog` lists them.

Everything here is pure: how to start an agent, and how to read its output. Starting it, timeouts
and limits belong to `paraval.targets.agent`.
"""
