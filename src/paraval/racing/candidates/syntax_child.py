"""Run as a program of its own: tells of Python sources what they say, whatever they look like.

On stdin, each source with its length in a line before it. On stdout a line for each: a hash of its
syntax tree without positions, or `-` where it has none. It imports nothing of paraval. What such a
source can do to a parser (days of work, no stack left) it does to this process alone.
"""

from __future__ import annotations

import ast
import hashlib
import sys

NONE = "-"


def main() -> None:
    while line := sys.stdin.buffer.readline():
        print(form_of(sys.stdin.buffer.read(int(line))), flush=True)


def form_of(source: bytes) -> str:
    """Comments, type comments and formatting are not in it; docstrings are."""
    try:
        tree = ast.parse(source)
        return _hashed(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError, SystemError):
        return NONE


def _hashed(tree: ast.AST) -> str:
    """Without recursion: a long sum is a deep tree."""
    digest = hashlib.sha256()
    pending: list[object] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.AST):
            digest.update(f"({type(node).__name__} ".encode())
            # `u"x"` says no more than "x".
            fields = [name for name in node._fields if name not in ("kind", "type_comment")]
            pending.extend(getattr(node, name, None) for name in fields)
        elif isinstance(node, list):
            digest.update(b"[%d " % len(node))
            pending.extend(node)
        else:
            text = repr(node).encode(errors="surrogatepass")
            digest.update(f"{type(node).__name__} {len(text)} ".encode() + text)
    return digest.hexdigest()


if __name__ == "__main__":
    main()
