"""`dataclass` as in the standard library, in a third of the time.

The standard library compiles up to six methods for each class, and a run loads hundreds of classes.
Here it compiles only `__init__`: the other methods are closures, and only the type checker enforces
`frozen`. Frozen classes that users' code gets, such as `Case`, use the standard library's, with a
quicker `__init__`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["dataclass", "quick_init"]

T = TypeVar("T")

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


def quick_init(cls: type[T]) -> type[T]:
    """Let a frozen, keyword-only dataclass of the standard library set its slots directly: by
    `object.__setattr__`, with their names, it takes nearly twice as long."""
    usual: Any = cls.__init__
    names: dict[str, Any] = {}
    lines = []
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]  # it is a dataclass
        name = field.name
        names[f"set_{name}"] = getattr(cls, name).__set__
        if field.default_factory is not dataclasses.MISSING:
            names[f"no_{name}"] = usual.__kwdefaults__[name]
            names[f"make_{name}"] = field.default_factory
            lines.append(f" if {name} is no_{name}: {name} = make_{name}()")
        lines.append(f" set_{name}(self, {name})")
    parameters = ", ".join(name for name in usual.__annotations__ if name != "return")
    exec("\n".join([f"def __init__(self, *, {parameters}):", *lines]), names)  # noqa: S102 - names
    made = names["__init__"]
    for part in ("__kwdefaults__", "__annotations__", "__qualname__"):
        setattr(made, part, getattr(usual, part))
    cls.__init__ = made  # type: ignore[method-assign]  # that is the point
    return cls
