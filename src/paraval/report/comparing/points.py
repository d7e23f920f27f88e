"""Differences, ratios and p-values in words: the same in every sentence that tells of them."""

from __future__ import annotations

import math

from paraval.report.comparing.comparison import Interval

_SMALLEST_P = 0.001
_FINEST = 6
"""Digits of a p-value, at most."""
_FINEST_POINTS = 4
_NARROW = 4
"""Points: a narrower range is told in tenths."""


def points(share: float) -> str:
    """`12 points`, `1 point`, `0.4 points`: a difference without its sign."""
    number = _number(abs(share))
    return f"{number} {'point' if number == '1' else 'points'}"


def signed(share: float) -> str:
    """`+12`, `-0.4`, `0`: in points."""
    number = _number(abs(share))
    if number == "0":
        return number
    return f"{'+' if share > 0 else '-'}{number}"


def signed_points(share: float) -> str:
    """`+12 points`, `-1 point`."""
    return f"{signed(share)} {points(share).split()[1]}"


def signed_range(interval: Interval, bound: float = 0.0) -> str:
    """`-9 to +13`, `+0.3 to +20.8`: in points, both ends with as many digits as it takes to see on
    which side of the bound each lies, and that they differ."""
    edge = bound * 100
    low, high = (share * 100 for share in interval)
    for digits in range(_FINEST_POINTS + 1):
        shown = [_rounded(value, digits) for value in (low, high)]
        if (digits or high - low >= _NARROW or low == high) and all(
            _side_of(one, edge) == _side_of(value, edge)
            for one, value in zip(shown, (low, high), strict=True)
        ):
            break
    return " to ".join(f"{one:+.{digits}f}" if one else "0" for one in shown)


def p_value(p: float, confidence: float = 0.95) -> str:
    """`p = 0.03`, `p < 0.001`; with as many digits as it takes to see on which side of what was
    asked for it lies."""
    if p < _SMALLEST_P:
        return f"p < {_SMALLEST_P}"
    asked = round(1 - confidence, 12)
    for digits in range(2, _FINEST + 1):
        shown = f"{p:.{digits}g}"
        if (float(shown) < asked) == (p < asked):
            break
    return f"p = {shown}"


def times(ratio: float) -> str:
    """`1.8`, `0.97`, `12`, `0.0042`."""
    if ratio >= 9.95:
        return f"{ratio:,.0f}"
    if ratio < 0.1:
        return f"{ratio:.2g}"
    return f"{ratio:.{1 if ratio >= 1.995 else 2}f}".rstrip("0").rstrip(".")


def plural(axis: str) -> str:
    """`models`, `categories`: several values of an axis."""
    if axis.endswith("y") and axis[-2:-1] not in tuple("aeiou"):
        return f"{axis[:-1]}ies"
    return axis if axis.endswith("s") else f"{axis}s"


def _number(share: float) -> str:
    """0 and 100 only when it is exactly that."""
    value = share * 100
    if math.isclose(value, round(value), abs_tol=1e-7):
        return f"{round(value)}"
    if value < 1.95:
        return f"{max(value, 0.1):.1f}".removesuffix(".0")
    return f"{min(round(value), 99) if value < 100 else round(value)}"


def _rounded(value: float, digits: int) -> float:
    """100 only when it is exactly that."""
    shown = round(value, digits)
    if abs(shown) < 100 or math.isclose(abs(value), 100, abs_tol=1e-7):
        return shown
    return math.copysign(100 - 10**-digits, value)


def _side_of(value: float, edge: float) -> int:
    """0: no digits that are told would show on which."""
    if math.isclose(value, edge, abs_tol=0.5 * 10**-_FINEST_POINTS):
        return 0
    return 1 if value > edge else -1
