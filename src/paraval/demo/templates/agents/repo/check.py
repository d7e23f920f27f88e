"""Checks stats.py; ends with 1 if anything is wrong."""

import sys

from stats import mean, median

CHECKS = [
    ("mean([1, 2, 6])", mean([1, 2, 6]), 3),
    ("median([3, 1, 2])", median([3, 1, 2]), 2),
    ("median([4, 1, 2, 3])", median([4, 1, 2, 3]), 2.5),
]
wrong = [f"{what} is {is_}, not {expected}" for what, is_, expected in CHECKS if is_ != expected]
print("; ".join(wrong) or f"all {len(CHECKS)} checks pass")
sys.exit(1 if wrong else 0)
