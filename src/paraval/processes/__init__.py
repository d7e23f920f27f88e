"""Child process trees: start, watch, bound, end. The only place that spawns.

The engine (`children`) asks one warden process (`warden`) to give each command to a keeper
(`keeper`), which serves one at a time and many in its life. The keeper starts the command
(`launch`), finds and ends all that comes of it (`tree`), and carries its output into log files
(`capture`); they talk in frames (`wire`). Who a process is, and what a dead engine left behind, is
told by `identity`.

Warden, keeper, launch, tree, capture and wire run in an interpreter of their own that must stay
small and start fast: they import nothing but each other and light parts of the standard library.
"""
