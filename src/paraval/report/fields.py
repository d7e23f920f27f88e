"""An object out of somebody's JSON, asked for one field after the other.

A field that is missing or is something else is a ValueError that says which and what. A report has
millions of fields: what most of them are is looked at first.
"""

from __future__ import annotations

from collections.abc import Collection
from math import isfinite
from typing import Any

from paraval.records import Scalar
from paraval.report.costs import finite

_SHOWN = 40
_DUST = 1e-9


class Fields:
    """Null is the same as missing."""

    __slots__ = ("_data", "_what")

    def __init__(self, data: object, what: str) -> None:
        """`what` it is, in messages: `a trial`, `'judging'`."""
        if not isinstance(data, dict):
            raise ValueError(f"{what} is no object")  # noqa: TRY004 - it is the file that is wrong
        self._data: dict[str, Any] = data
        self._what = what

    def names(self) -> Collection[str]:
        return self._data.keys()

    def has(self, name: str) -> bool:
        return self._data.get(name) is not None

    def text(self, name: str) -> str:
        found = self.maybe_text(name)
        if found is None:
            raise self._missing(name)
        return found

    def maybe_text(self, name: str) -> str | None:
        found = self._data.get(name)
        if found is None or isinstance(found, str):
            return found
        raise self._wrong(name, "text")

    def whole(self, name: str, *, default: int | None = None) -> int:
        """From 0 on; without a default it must be there."""
        found = self.maybe_whole(name)
        if found is None:
            found = default
        if found is None:
            raise self._missing(name)
        if found < 0:
            raise self._wrong(name, "number from 0 on")
        return found

    def maybe_whole(self, name: str) -> int | None:
        found = self._data.get(name)
        if found is None or (isinstance(found, int) and not isinstance(found, bool)):
            return found
        raise self._wrong(name, "whole number")

    def number(self, name: str) -> float | None:
        found = self._data.get(name)
        if found is None:
            return None
        if type(found) is float and isfinite(found):
            return found
        number = finite(found)
        if number is None:
            raise self._wrong(name, "number")
        return number

    def amount(self, name: str) -> float | None:
        """From 0 on."""
        found = self.number(name)
        if found is not None and found < 0:
            raise self._wrong(name, "number from 0 on")
        return found

    def share(self, name: str) -> float | None:
        """From 0 to 1, but for what rounding leaves of weighted means."""
        found = self.number(name)
        if found is None:
            return None
        if not -_DUST <= found <= 1 + _DUST:
            raise self._wrong(name, "number from 0 to 1")
        return min(max(found, 0.0), 1.0)

    def flag(self, name: str) -> bool:
        """False where nothing is said."""
        found = self._data.get(name)
        if found is None or isinstance(found, bool):
            return bool(found)
        raise self._wrong(name, "true or false")

    def scalar(self, name: str) -> Scalar:
        found = self._data.get(name)
        if isinstance(found, str | int | float):
            return found
        raise self._wrong(name, "text, number, true or false")

    def texts(self, name: str) -> tuple[str, ...]:
        found = self._list(name)
        if found and not all(isinstance(one, str) for one in found):
            raise self._wrong(name, "list of texts")
        return tuple(found)

    def each(self, name: str) -> list[Fields]:
        """Of a list of objects."""
        return [Fields(one, f"an entry of '{name[:_SHOWN]}'") for one in self._list(name)]

    def fields(self, name: str) -> Fields | None:
        found = self._data.get(name)
        return None if found is None else Fields(found, f"'{name[:_SHOWN]}'")

    def mapping(self, name: str, *, is_needed: bool = False) -> Fields:
        """An empty one where there is none."""
        found = self._data.get(name)
        if found is None and is_needed:
            raise self._missing(name)
        return NOTHING if found is None or found == {} else Fields(found, f"'{name[:_SHOWN]}'")

    def _list(self, name: str) -> list[Any]:
        found = self._data.get(name)
        if found is None:
            return []
        if not isinstance(found, list):
            raise self._wrong(name, "list")
        return found

    def _missing(self, name: str) -> ValueError:
        return ValueError(f"{self._what} has no '{name[:_SHOWN]}'")

    def _wrong(self, name: str, expected: str) -> ValueError:
        return ValueError(f"'{name[:_SHOWN]}' of {self._what} is not a {expected}")


NOTHING = Fields({}, "nothing")
"""An object without fields."""
