"""How many leases a pool gives out at once: fewer after a slot could not be made, and more again.

One failure may pass, and takes one from their number; those that follow take more each, so that a
full disk is not tried as often as there could have been slots.
"""

from __future__ import annotations

_FIRST_PATIENCE = 4
_MOST_PATIENCE = 256


class Room:
    """A number between 1 and `at_most`."""

    def __init__(self, at_most: int) -> None:
        self._at_most = self.size = max(1, at_most)
        self._step = 1
        """How much the next failure takes."""
        self._patience = _FIRST_PATIENCE
        """After how many leases without a failure one more is tried."""
        self._leases = 0

    def lower(self, working: int) -> None:
        """A slot could not be made: do with less, but never with less than there are."""
        self.size = max(1, working, self.size - self._step)
        self._step *= 2
        self._patience = min(2 * self._patience, _MOST_PATIENCE)
        self._leases = 0

    def raise_after(self, *, is_new: bool) -> None:
        """A slot was made, or one was made ready again."""
        self._leases += 1
        if is_new:
            self._step, self._patience = 1, _FIRST_PATIENCE
        if self.size < self._at_most and (is_new or self._leases >= self._patience):
            self.size += 1
            self._leases = 0
