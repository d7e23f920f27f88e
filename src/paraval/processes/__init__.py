"""Child process trees: start, watch, bound, end. The only place that spawns.

The engine (`children`) asks one warden process (`warden_client` starts it, `warden` is it) to give
each command (`commands`) to a keeper (`keeper`), which serves one at a time and many in its life;
the engine's end of that line is in `warden_client`. The keeper starts the command (`launch`),
finds and ends all that comes of it (`tree`, and `cgroups` where they may be written), has it yield
to others or stay on CPUs of its own (`priority`), and carries its output into log files
(`log_capture`); they talk in frames (`wire`). What running commands take is told by `children`,
which limits this machine can enforce by `enforcement`. Who a process is, and what a dead engine
left behind, is told by `identity`, which also keeps the engine's environment from its children.
`sandbox` makes a command's line one of bubblewrap, and `quick` runs short programs of our own.

Warden, keeper, launch, tree, cgroups, priority, log_capture and wire run in an interpreter of
their own that must stay small and start fast: they import nothing but each other and light parts
of the standard library.
"""
