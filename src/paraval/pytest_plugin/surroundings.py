"""The folder and the environment of the process, as they were before a test had the floor.

A test that ends puts back what it changed, or pytest does; for one that was given up nobody would.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """At one moment."""

    folder: Path | None
    """None: it was deleted."""
    environment: Mapping[str, str]

    @staticmethod
    def now() -> Surroundings:
        folder = None
        with suppress(OSError):
            folder = Path.cwd()
        return Surroundings(folder=folder, environment=dict(os.environ))

    def put_back(self) -> None:
        """Only what differs is set."""
        if self.folder is not None:
            with suppress(OSError):  # It may be gone.
                os.chdir(self.folder)
        for name in [name for name in os.environ if name not in self.environment]:
            os.environ.pop(name, None)
        for name, value in self.environment.items():
            if os.environ.get(name) != value:
                os.environ[name] = value
