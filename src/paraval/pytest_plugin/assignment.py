"""Which test each trial is: all of a session's, or those that xdist hands out to this worker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from paraval.pytest_plugin.engine import Engine, Programme
from paraval.pytest_plugin.xdist_worker import TakenItems


class Assignment:
    """Trials and tests, whoever chose them."""

    def __init__(
        self, items: Sequence[pytest.Item], programme: Programme, taken: TakenItems | None
    ) -> None:
        """`taken`: what xdist hands out; None: all tests are this process's own."""
        self._items = items
        self._programme = programme
        self._taken = taken
        self._handed_out: list[int] = []
        """By a trial's index: the place of its test in the session. A test that was taken back may
        come once more, as another trial."""
        self._given_away = 0

    @property
    def is_handed_out(self) -> bool:
        return self._taken is not None

    @property
    def count(self) -> int:
        """How many tests this process has to run, as far as it is known."""
        if self._taken is None:
            return len(self._items)
        return len(self._handed_out) - self._given_away

    def give_away(self) -> None:
        """One that was handed out is another worker's by now."""
        self._given_away += 1

    def place(self, index: int) -> int:
        return index if self._taken is None else self._handed_out[index]

    def item(self, index: int) -> pytest.Item:
        return self._items[self.place(index)]

    def begin(self, engine: Engine) -> None:
        """Once the engine runs: what is handed out is added as it comes."""
        if self._taken is not None:
            self._taken.listen(self._given_to(engine), engine.add_no_more)

    def _given_to(self, engine: Engine) -> Callable[[Sequence[int]], None]:
        def given(places: Sequence[int]) -> None:
            first = len(self._handed_out)
            self._handed_out.extend(places)
            trials = [self._programme.trials[place] for place in places]
            works = [self._programme.works[place] for place in places]
            engine.add(
                [
                    replace(trial, index=index, key=f"{trial.key} ({index})")
                    for index, trial in enumerate(trials, first)
                ],
                [work._replace(index=index) for index, work in enumerate(works, first)],
            )

        return given

    # ---- what the one who hands out has to know

    def claim(self, index: int) -> bool:
        """Whether the trial's test is still this process's to run."""
        return self._taken is None or self._taken.claim(self.place(index))

    def about_to_tell(self, index: int) -> None:
        """Reports of this trial's test come now, in the main thread."""
        if self._taken is not None:
            self._taken.about_to_tell(self.place(index))

    def done(self, index: int, duration_s: float) -> None:
        if self._taken is not None:
            self._taken.done(self.place(index), duration_s)
