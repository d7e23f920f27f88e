"""The slow proofs: `make faults` runs and reports them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.kills import survive


@pytest.mark.faults
def test_two_hundred_random_kills_lose_and_double_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tally = survive(tmp_path, kills=200, seed=20)
    with capsys.disabled():
        print(
            f"\n{tally.kills} kills in {tally.campaigns} campaigns: {tally.again} trials run again "
            f"({tally.again / tally.kills:.2f} a kill), {len(tally.problems)} problems"
        )
    assert tally.problems == []
