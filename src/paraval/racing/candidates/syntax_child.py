"""A separate program: hashes Python sources by their syntax, ignoring formatting.

Reads sources from stdin, each with its length on a line before it. Writes a line for each: a hash
of its syntax tree without positions, `!:12: invalid syntax`, or `-` if it cannot be parsed for
another reason. It does not import paraval. A source that overwhelms the parser (days of work, no
stack left) only affects this process.
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
    """The hash of a source, without comments, type comments and formatting, with docstrings."""
    try:
        tree = ast.parse(source)
        return _hashed(tree)
    except SyntaxError as error:
        return f"!:{error.lineno}: {error.msg}".replace("\n", " ")
    except (ValueError, RecursionError, MemoryError, SystemError):
        return NONE


def _hashed(tree: ast.AST) -> str:
    """Hash a tree without recursion: a long sum is a deep tree."""
    digest = hashlib.sha256()
    pending: list[object] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.AST):
            digest.update(f"({type(node).__name__} ".encode())
            # `u"x"` means the same as "x".
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
