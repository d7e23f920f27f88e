"""Where attempts run: on this machine, or on the nodes of a cluster. Each is a limit of its own, by
its number of slots and, with limits `auto`, by a gate that its own readings feed.

Which trial goes first is decided elsewhere; which machine takes it, here: the one with the most
free slots.
"""

from __future__ import annotations

import heapq
import sys
from collections.abc import Iterable, Iterator

from paraval.dataclass import dataclass
from paraval.records import MachineReading
from paraval.schedule.machine_gate import MachineGate
from paraval.schedule.messages import CapacityChanged, Work

THIS_MACHINE = ""


@dataclass(slots=True, eq=False)
class Machine:
    """This machine, or a node."""

    name: str | None
    """None: this machine."""
    slots: int
    gate: MachineGate | None
    joined_with: int = 0
    """Its slots when it joined; users may allow fewer for a while."""
    running: int = 0
    has_left: bool = False
    """True: it takes no more, and is forgotten when its last attempt has ended."""

    @property
    def free(self) -> int:
        return 0 if self.has_left else self.slots - self.running


Room = tuple[int, int, str]
"""Sorts the machine first that takes the next attempt: the most free slots, the fewest running, by
name."""


class Pool:
    """Machines that take the same trials: only this one, or all nodes."""

    def __init__(self, *, auto: bool) -> None:
        self.slots = 0
        self.waiting = 0
        """Trials that wait for one of these machines ..."""
        self.waiting_s = 0.0
        """... and how long they are expected to take together."""
        self.auto = auto
        self._most = sys.maxsize
        """Slots that a machine may have, however many it joined with."""
        self._machines: dict[str, Machine] = {}
        self._rooms: list[Room] = []
        """A heap. An entry counts only while it says how the machine is now."""
        self._first: Machine | None = None
        """The first of the heap that counts, as long as nothing has changed."""

    # ---- machines come and go

    def join(self, name: str | None, slots: int) -> None:
        """Also of a machine that is known: it has this many slots from now on, and keeps what is
        still running on it."""
        machine = self._machines.get(name or THIS_MACHINE)
        if machine is None:
            gate = MachineGate(slots, node=name) if self.auto else None
            machine = self._machines[name or THIS_MACHINE] = Machine(name, slots, gate)
        elif not machine.has_left:
            self.slots -= machine.slots
        machine.joined_with, slots = slots, min(slots, self._most)
        self.slots += slots
        machine.slots, machine.has_left = slots, False
        if machine.gate is not None:
            machine.gate.parallel = slots
        self._has_changed(machine)

    def allow(self, most: int) -> None:
        """No machine has more slots than this from now on, nor more than it joined with."""
        self._most = most
        for machine in self._machines.values():
            if not machine.has_left:
                self.join(machine.name, machine.joined_with)

    def adapt(self, *, auto: bool, running: Iterable[tuple[Machine, Work, float]]) -> None:
        """Let readings decide how many run, or only the slots. `running`: what is, and since
        when."""
        if auto is self.auto:
            return
        self.auto = auto
        for machine in self._machines.values():
            machine.gate = MachineGate(machine.slots, node=machine.name) if auto else None
            self._has_changed(machine)
        for machine, work, since in running:
            if machine.gate is not None:
                machine.gate.start(since, work)

    def leave(self, name: str) -> None:
        machine = self._machines.get(name)
        if machine is None or machine.has_left:
            return
        machine.has_left = True
        self._first = None
        self.slots -= machine.slots
        self._forget_if_gone(machine)

    def _forget_if_gone(self, machine: Machine) -> None:
        if machine.has_left and not machine.running:
            del self._machines[machine.name or THIS_MACHINE]

    # ---- attempts

    @property
    def has_room(self) -> bool:
        """Whether a slot is free, on a machine that does not refuse everything."""
        return (self._first or self._roomiest()) is not None

    @property
    def at_once(self) -> int:
        """How many may run, as far as only their number counts."""
        return sum(
            one.slots if one.gate is None else one.gate.at_once
            for one in self._machines.values()
            if not one.has_left
        )

    @property
    def is_used(self) -> bool:
        """Whether anything runs on these machines, or waits for them."""
        return self.waiting > 0 or any(one.running for one in self._machines.values())

    def choose(self, work: Work) -> Machine | None:
        """The machine to start it on now; None: there is no room for it.

        A machine that refuses whatever comes has no room until something changes on it.
        """
        refused: list[Room] = []
        found: Machine | None = None
        while (machine := self._roomiest()) is not None:
            if machine.gate is None or machine.gate.admits(work):
                found = machine
                break
            room = heapq.heappop(self._rooms)
            self._first = None
            if not machine.gate.is_shut:
                refused.append(room)
        for room in refused:
            self._first = None
            heapq.heappush(self._rooms, room)
        return found

    def start(self, machine: Machine, work: Work, now: float) -> None:
        machine.running += 1
        if machine.gate is not None:
            machine.gate.start(now, work)
        self._has_changed(machine)

    def end(self, machine: Machine, index: int, memory_bytes: int | None) -> None:
        machine.running -= 1
        if machine.gate is not None:
            machine.gate.end(index, memory_bytes)
        self._has_changed(machine)
        self._forget_if_gone(machine)

    def _roomiest(self) -> Machine | None:
        while self._first is None and self._rooms:
            free, running, name = self._rooms[0]
            machine = self._machines.get(name)
            if machine is not None and machine.running == running and machine.free == -free:
                self._first = machine
            else:
                heapq.heappop(self._rooms)
        return self._first

    def _has_changed(self, machine: Machine) -> None:
        self._first = None
        if len(self._rooms) > 4 * len(self._machines):
            # Outdated entries would add up at the bottom.
            self._rooms = [_room_of(one) for one in self._machines.values() if one.free > 0]
            heapq.heapify(self._rooms)
        elif machine.free > 0:
            heapq.heappush(self._rooms, _room_of(machine))

    # ---- readings

    def measure(self, name: str | None, at: float, reading: MachineReading | None) -> None:
        machine = self._machines.get(name or THIS_MACHINE)
        if machine is not None and machine.gate is not None:
            machine.gate.measure(at, reading)
            self._has_changed(machine)

    def news(self, name: str | None, at: float) -> Iterator[CapacityChanged]:
        machine = self._machines.get(name or THIS_MACHINE)
        if machine is not None and machine.gate is not None and not machine.has_left:
            wanted = min(machine.slots, machine.running + self.waiting)
            yield from machine.gate.news(at, wanted)


def _room_of(machine: Machine) -> Room:
    return (-machine.free, machine.running, machine.name or THIS_MACHINE)
