"""Amounts that agents tell are amounts, or nothing."""

from __future__ import annotations

import math

import pytest

from paraval.agents.json_output import as_amount


@pytest.mark.parametrize("amount", [0, 1, 2.5, 10**15])
def test_an_amount_is_taken_as_it_is(amount: float) -> None:
    assert as_amount(amount) == amount


@pytest.mark.parametrize("told", [-1, math.nan, math.inf, 10**400, -(10**400), True, "7", None, []])
def test_what_is_no_amount_is_nothing_whatever_its_size(told: object) -> None:
    assert as_amount(told) is None
