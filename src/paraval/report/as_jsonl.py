"""JSON Lines: the trials of the JSON report, one a line, in plan order, and nothing else."""

from __future__ import annotations

from typing import TextIO

from paraval.report.as_json import to_json, trial_as_dict
from paraval.report.contents import Contents


class AsJsonLines:
    def write(self, contents: Contents, file: TextIO) -> None:
        file.writelines(to_json(trial_as_dict(result)) + "\n" for result in contents.trials)
