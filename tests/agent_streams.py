"""Streams of JSON lines as no agent should print them, for the readers that must bear them."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

_LEAVES: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=12),
    st.sampled_from([10**400, -1, float("nan"), "\ud800", "x" * 5000, [], {}]),
)


def hostile_streams(
    *, types: tuple[str, ...], words: tuple[str, ...], keys: tuple[str, ...]
) -> st.SearchStrategy[str]:
    """Lines with the right keys and wrong values, cut lines, and lines that are none."""
    names = st.sampled_from((*keys, "type"))
    values = st.recursive(
        st.one_of(_LEAVES, st.sampled_from((*types, *words))),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=4)
        ),
        max_leaves=12,
    )
    events = st.builds(
        lambda kind, rest: json.dumps({**rest, "type": kind}),
        st.sampled_from(types),
        st.dictionaries(names, values, max_size=6),
    )
    cut = st.builds(lambda line, at: line[: at % (len(line) + 1)], events, st.integers(0, 400))
    odd = st.sampled_from(
        ["", "[" * 3000, '{"a":' * 3000, '{"type":"result","type":1}', "{}", "[]"]
    )
    lines = st.one_of(events, events, cut, odd, st.text(max_size=30))
    return st.lists(lines, max_size=8).map("\n".join)
