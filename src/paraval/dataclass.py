"""`dataclass` as in the standard library, in a third of the time.

The standard library compiles up to six methods for each class, and a run loads hundreds of classes.
Here it compiles only `__init__`: the other methods are closures, and only the type checker enforces
`frozen`. Frozen classes that users' code gets, such as `Case`, use the standard library's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(
        *,
        frozen: bool = False,
        slots: bool = False,
        kw_only: bool = False,
        eq: bool = True,
        repr: bool = True,  # noqa: A002 - the standard library's name
    ) -> Callable[[type], type]:
        """A decorator with the standard library's meaning of these options."""

        def decorate(cls: type) -> type:
            own = vars(cls)
            made = dataclasses.dataclass(slots=slots, kw_only=kw_only, eq=False, repr=False)(cls)
            fields = made.__dataclass_fields__.values()
            if eq and "__eq__" not in own:
                _compare(made, [field.name for field in fields if field.compare], frozen=frozen)
            if repr and "__repr__" not in own:
                _show(made, [field.name for field in fields if field.repr])
            return made

        return decorate


def _compare(cls: Any, names: list[str], *, frozen: bool) -> None:
    values = attrgetter(*names) if names else type

    def equal(self: object, other: object) -> bool:
        return values(self) == values(other) if type(other) is type(self) else NotImplemented

    cls.__eq__ = equal
    cls.__hash__ = (lambda self: hash(values(self))) if frozen else None


def _show(cls: Any, names: list[str]) -> None:
    def shown(self: object) -> str:
        values = ", ".join([f"{name}={getattr(self, name)!r}" for name in names])
        return f"{type(self).__qualname__}({values})"

    cls.__repr__ = shown
