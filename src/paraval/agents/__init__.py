"""Agent programs: one file each, behind the one screen of `program`; `catalog` lists them.

Everything here is pure: how to start an agent, and how to read what it left. Who starts it, decides
a timeout and keeps limits is `paraval.targets.agent`.
"""
