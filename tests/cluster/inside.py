"""Runs one async function on a node, as `World.drive` asks: `python -m tests.cluster.inside
module:function arguments...`; prints its result as JSON."""

from __future__ import annotations

import asyncio
import importlib
import json
import sys

if __name__ == "__main__":
    module, _, name = sys.argv[1].partition(":")
    function = getattr(importlib.import_module(module), name)
    print(json.dumps(asyncio.run(function(*sys.argv[2:]))), flush=True)
