"""What candidates are called in a race: no two alike, and on a replay as they were. Pure.

A name is a candidate's own from when it is staged: what happens to it is recorded under it. Whoever
never is staged leaves no record, and so is called by its place among the others, whatever came
first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from itertools import chain, count

from paraval.racing.course_entries import Entry
from paraval.racing.steps import BASELINE


class Names:
    """Those that are taken."""

    def __init__(self, taken: Collection[str] = ()) -> None:
        self._taken = {BASELINE, *taken}
        self._next: dict[str, int] = defaultdict(lambda: 2)
        """By name: the number behind it that may be free. Below it none is."""

    def __contains__(self, name: str) -> bool:
        return name in self._taken

    def free_for(self, entry: Entry, reserved: Collection[str] = ()) -> str:
        """Not yet taken: see `take`.

        A name that is taken has its parent's before it: a number alone would be another one when
        hooks end in another order.
        """
        told = told_with_parent(entry)
        names = chain(dict.fromkeys((entry.told, told)), self._numbered(told))
        return next(name for name in names if name not in self._taken and name not in reserved)

    def take(self, name: str) -> None:
        self._taken.add(name)

    def _numbered(self, told: str) -> Iterator[str]:
        for number in count(self._next[told]):
            name = f"{told}-{number}"
            if name not in self._taken:
                yield name
            elif number == self._next[told]:
                self._next[told] = number + 1


def told_with_parent(entry: Entry) -> str:
    """What it is called where the name that it came with is taken."""
    parent = entry.proposal.parent
    return entry.told if parent is None else f"{parent}-{entry.told}"
