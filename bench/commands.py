"""N commands that sleep; prints the wall time of the run."""

from __future__ import annotations

import json
import sys

import paraval

count, seconds, parallel = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
suite = paraval.Suite(
    name="bench",
    cases=[paraval.Case(id=f"c{i}") for i in range(count)],
    target={"command": ["sleep", seconds]},
)
report = paraval.run(suite, parallel=parallel)
assert report.exit_code == 0
print(json.dumps({"wall_s": report.run.wall_s}))
