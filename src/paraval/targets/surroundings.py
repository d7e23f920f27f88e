"""What a process of an attempt sees of the machine: its home, its temporary folder, its sandbox."""

from __future__ import annotations

from collections.abc import Callable

from paraval.isolation import Home
from paraval.processes.sandbox import Sandbox
from paraval.records import Attempt
from paraval.scratch import OwnHome

SandboxFor = Callable[[Attempt, OwnHome | None], Sandbox | None]
"""What bounds an attempt that has this home; None: nothing does."""


def unbounded(_attempt: Attempt, _own: OwnHome | None) -> Sandbox | None:
    return None


def own_places(own: OwnHome | None, home: Home) -> dict[str, str]:
    """Its variables; whatever the home, temporary files are its own."""
    if own is None:
        return {}
    places = {"TMPDIR": own.temp}
    return {**places, "HOME": own.home} if home is Home.OWN else places
