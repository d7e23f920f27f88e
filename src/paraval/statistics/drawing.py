"""An order that has nothing to do with what is ordered: drawn by chance, the same for a seed."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b


def drawn_order(names: Sequence[str], seed: int) -> list[str]:
    """The names in random order.

    A name's place is a hash of itself and the seed alone: without some of them, or with more, the
    others keep their order.
    """
    key = blake2b(str(seed).encode()).digest()

    def lot(name: str) -> tuple[bytes, str]:
        # Half of a surrogate pair is no text, but may be a name all the same.
        text = name.encode(errors="surrogatepass")
        return blake2b(text, digest_size=16, key=key).digest(), name

    return sorted(names, key=lot)
