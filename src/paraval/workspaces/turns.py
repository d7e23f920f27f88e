"""Whose turn it is: first come, first served, and never more at once than there is room for."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress

from paraval.workspaces.room import Room


class Turns:
    """Handed out as long as there is room, and taken back."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.taken = 0

    async def take(self, *, ahead: bool = False) -> None:
        """Wait for one; `ahead` of all that came later."""
        if self.taken < self._room.size and (ahead or not self._waiting):
            self.taken += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if ahead:
            self._waiting.appendleft(turn)
        else:
            self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            with suppress(ValueError):
                self._waiting.remove(turn)
            if not turn.cancelled():
                # It was given in the same moment.
                self.give_back()
            raise

    @property
    def are_waited_for(self) -> bool:
        return bool(self._waiting)

    def give_back(self) -> None:
        self.taken -= 1
        self.hand_out()

    def hand_out(self) -> None:
        """To those who wait, as far as there is room."""
        while self._waiting and self.taken < self._room.size:
            turn = self._waiting.popleft()
            if not turn.done():
                self.taken += 1
                turn.set_result(None)

    def end(self) -> None:
        """Wake all who wait: there is nothing to wait for any more."""
        for turn in self._waiting:
            if not turn.done():
                turn.set_result(None)
