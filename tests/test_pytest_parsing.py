"""Syntax trees are built one at a time where Python needs it."""

from __future__ import annotations

import ast
import sys
import threading
import time

import pytest

from paraval.pytest_plugin.running.patches import serialize_parsing


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="nothing else runs meanwhile")
def test_no_two_threads_parse_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many ask; and one that parses within its own parsing does not wait for itself."""
    inside: set[int] = set()
    most = 0

    def parse(depth: int) -> str:
        nonlocal most
        inside.add(threading.get_ident())
        most = max(most, len(inside))
        time.sleep(0.002)
        if depth:
            ast.parse(depth - 1)  # type: ignore[call-overload]  # it is ours
        inside.discard(threading.get_ident())
        return "parsed"

    monkeypatch.setattr(ast, "parse", parse)
    with serialize_parsing():
        threads = [threading.Thread(target=ast.parse, args=(1,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert ast.parse(0) == "parsed"  # type: ignore[call-overload]  # it is ours
    assert most == 1
    assert vars(ast)["parse"] is parse
