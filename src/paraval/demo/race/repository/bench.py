"""How long sorting takes: seconds by case, into bench.json. Of each case the best of three.

It prints a digest of the results, so that a race sees that the work was done.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import time
from pathlib import Path

from toposort import topological_sort

Graph = tuple[list[str], list[tuple[str, str]]]


def chain(size: int) -> Graph:
    nodes = [f"n{number:04}" for number in range(size)]
    return nodes, list(itertools.pairwise(nodes))


def layers(count: int, width: int) -> Graph:
    chance = random.Random(7)
    rows = [[f"l{row:03}-{place:03}" for place in range(width)] for row in range(count)]
    edges = [
        (chance.choice(before), node)
        for before, after in itertools.pairwise(rows)
        for node in after
        for _ in range(2)
    ]
    return [node for row in rows for node in row], edges


def seconds(graph: Graph) -> float:
    best = float("inf")
    for _ in range(3):
        began = time.perf_counter()
        topological_sort(*graph)
        best = min(best, time.perf_counter() - began)
    return best


if __name__ == "__main__":
    graphs = {"chain": chain(130), "layers": layers(12, 8)}
    Path("bench.json").write_text(json.dumps({name: seconds(one) for name, one in graphs.items()}))
    orders = [list(topological_sort(*one)) for one in graphs.values()]
    print("orders", hashlib.sha256(json.dumps(orders).encode()).hexdigest())
