"""Child process trees: starts, watches, limits and ends them. The only package that spawns.

The engine (`children`) asks one warden process (`warden`, started by `warden_client`) to give each
command (`commands`) to a supervisor (`supervisor`), which serves one at a time and many in its
life; `warden_client` also has the engine's end of that connection. The supervisor starts the
command (`launch`), finds and ends all of its descendants (`tree`, and `cgroups` if writable), sets
its priority and CPUs (`priority`), and writes its output to log files (`log_capture`); they talk in
frames (`wire`). `children` measures running commands; `enforcement` knows which limits this machine
can enforce. `identity` identifies processes, finds what a dead engine left behind, and keeps the
engine's environment from its children. `sandbox` wraps a command line in bubblewrap, and `quick`
runs short programs of our own.

Warden, supervisor, launch, tree, cgroups, priority, log_capture, wire and fast_imports run in an
interpreter of their own that must stay small and start fast: they import nothing but each other and
light parts of the standard library.
"""
