"""Puts things in an order in which each comes after all that it needs."""

from __future__ import annotations


class CycleError(ValueError):
    """Some of the things need one another."""


def topological_sort(nodes: list[str], edges: list[tuple[str, str]]) -> list[str]:
    """The nodes in order: for each edge (before, after), `before` comes first.

    Of those that could come next, the smallest does, so that the order is always the same.
    """
    order: list[str] = []
    waiting = list(nodes)
    remaining = list(edges)
    while waiting:
        ready = [node for node in waiting if not any(after == node for _, after in remaining)]
        if not ready:
            raise CycleError(f"these need one another: {', '.join(sorted(waiting))}")
        first = min(ready)
        order.append(first)
        waiting.remove(first)
        remaining = [edge for edge in remaining if edge[0] != first]
    return order
