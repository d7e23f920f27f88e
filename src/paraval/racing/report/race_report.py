"""`RaceReport`: the result of a race, to read, print or write to files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from paraval.errors import RequestError
from paraval.plain_files import PlainFileError, read_plain_file
from paraval.racing.report.race_json import race_document
from paraval.racing.report.race_text import Shown, race_text
from paraval.racing.report.race_words import verdict_sentence, winner_of
from paraval.racing.request import RaceRequest
from paraval.racing.standings import CandidateStanding, Standings, Status
from paraval.records import RunInfo
from paraval.report.files import check_endings, write_whole
from paraval.text.document import Markdown
from paraval.text.tables import NARROWEST, Medium, Page
from paraval.text.terminal import one_line

MOST_PATCH_BYTES = 256_000_000
WIDTH_OF_A_FILE = 100

EXIT_WINNER, EXIT_NONE, EXIT_CANNOT_TELL, EXIT_INTERRUPTED = 0, 1, 3, 130


class RaceReport:
    """The candidates of a race and their standings, to read, print or write.

    `print(report)` shows what `paraval race` shows. `report.winner` is the winner or None,
    `report["name"]` one candidate, `report.patch` the winner's change. Iterating yields all
    candidates, in order of arrival.
    """

    def __init__(self, standings: Standings, run: RunInfo, request: RaceRequest) -> None:
        self.standings = standings
        self.run = run
        self.request = request

    @property
    def winner(self) -> CandidateStanding | None:
        return winner_of(self.standings)

    @property
    def candidates(self) -> tuple[CandidateStanding, ...]:
        return self.standings.candidates

    def __getitem__(self, name: str) -> CandidateStanding:
        for one in self.candidates:
            if one.name == name:
                return one
        raise KeyError(name)

    def __iter__(self) -> Iterator[CandidateStanding]:
        return iter(self.candidates)

    def __len__(self) -> int:
        return len(self.candidates)

    def __bool__(self) -> bool:
        """True, even without candidates."""
        return True

    @property
    def exit_code(self) -> int:
        """The exit code of `paraval race`: 0 a winner, 1 none, 3 undecided because the baseline
        did not pass, nothing was proposed or candidates are pending, 130 interrupted. If two refs
        were compared: 0 head is as fast or faster, or no difference was shown; 1 it is slower or
        fails its tests."""
        if self.run.interrupted:
            return EXIT_INTERRUPTED
        if self.standings.baseline.reason is not None:
            return EXIT_CANNOT_TELL
        has_raced = bool(self.candidates)
        is_done = self.standings.over and not self.run.held_back and has_raced
        if self.winner is not None or (is_done and self._is_as_fast):
            return EXIT_WINNER
        return EXIT_NONE if is_done else EXIT_CANNOT_TELL

    @property
    def _is_as_fast(self) -> bool:
        """Whether two refs were compared, and head was not shown to be slower."""
        fine = (Status.NOT_SHOWN, Status.DUPLICATE)
        return self.request.head is not None and self.candidates[0].status in fine

    # ---- patches

    @property
    def patch(self) -> str | None:
        """The winner's change as text, with non-UTF-8 bytes as surrogates."""
        patch = self.winner_patch()
        return None if patch is None else patch.decode(errors="surrogateescape")

    def winner_patch(self) -> bytes | None:
        """The winner's change; None if there is no winner."""
        return None if self.winner is None else self.patch_of(self.winner.name)

    def patch_of(self, name: str) -> bytes | None:
        """A candidate's patch; None if it never applied. RequestError if it cannot be read."""
        patch = self[name].patch
        if patch is None:
            return None
        try:
            return read_plain_file(patch, MOST_PATCH_BYTES, within=self.run.folder)
        except PlainFileError as error:
            raise RequestError(f"the patch of {name} cannot be read: {error}") from error

    def patch_path(self, name: str) -> Path | None:
        """The absolute path of a candidate's patch; None if it never applied."""
        patch = self[name].patch
        return None if patch is None else Path(self.run.folder, patch)

    # ---- to show

    def text(self, width: int = 80, *, color: bool = False, unicode: bool = True) -> str:
        """The report as printed after a race, without a final newline."""
        return self.text_on(Page(width=max(width, NARROWEST), color=color, unicode=unicode))

    def text_on(self, out: Medium) -> str:
        """The report, laid out for the medium."""
        return race_text(self._shown(), out)

    def as_json(self) -> dict[str, Any]:
        """The document of `-o race.json`."""
        return race_document(self.standings, self.run, self.request)

    def markdown(self) -> str:
        """The document of `-o race.md`."""
        return self.text_on(Markdown())

    def write(self, path: str | Path) -> None:
        """Write a file in the format of its ending, completely or not at all.

        .json, .md, .txt; .patch and .diff for the winner, if there is one.
        """
        path = Path(path)
        check_race_outputs([path])
        write_whole(path, self._written(path))

    def _written(self, path: Path) -> bytes:
        match path.suffix.lower():
            case ".json":
                text = json.dumps(self.as_json(), ensure_ascii=False, indent=1, allow_nan=False)
                return f"{text}\n".encode()
            case ".md":
                return self.markdown().encode()
            case ".txt":
                return f"{self.text(WIDTH_OF_A_FILE)}\n".encode()
        patch = self.winner_patch()
        if patch is None:
            raise RequestError(f"cannot write {path}: the race has no winner")
        return patch

    def _shown(self) -> Shown:
        patch: bytes | str | None
        try:
            patch = self.winner_patch()
        except RequestError as error:
            # The rest can be shown without it.
            patch = error.message
        return Shown(
            standings=self.standings,
            run=self.run,
            request=self.request,
            patch=patch,
        )

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        verdict = verdict_sentence(self.standings, self.request, lambda text: one_line(text, 80))
        return f"<RaceReport of {self.run.id}: {verdict}>"


def check_race_outputs(paths: Sequence[str | Path]) -> None:
    """Raise RequestError for files that could not be written later. Changes no file."""
    hint = "race.json for programs, winner.patch for the winner, race.md for a pull request"
    endings = (".json", ".patch", ".diff", ".md", ".txt")
    check_endings([Path(path) for path in paths], "a race's report", endings, hint)
