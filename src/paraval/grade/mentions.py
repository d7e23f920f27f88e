"""The grader that checks which files, symbols, lines and pieces of text an answer mentions.

By default the score is recall, the share of expected items that are mentioned. It can also be
precision, the share of files in the answer that are expected, or F1 of both. A name counts wherever
it stands, also where the answer says that something is not there.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from paraval.dataclass import dataclass
from paraval.grade.grader import CannotGrade, Subject, filled, quoted
from paraval.records import Case, Grade, GraderSpec
from paraval.text.words import some
from paraval.threads import Threads

# Paths in a text, and whether one is a shorter or longer form of another.

_WORD = re.compile(r"[\w./\\@+~-]+")
"""Characters of paths. Not `:`, `#` and brackets: they follow paths."""
_EXTENSION = re.compile(
    r"adoc|bash|bat|bazel|bzl|c|cc|cfg|clj|cmake|conf|cpp|cs|css|csv|cu|cxx|dart|diff|el|elm|env|erb"
    r"|erl|ex|exs|f90|fish|fs|gemspec|go|gradle|graphql|groovy|h|haml|hbs|hcl|hh|hpp|hs|html?|hxx|ini"
    r"|ipynb|java|jinja|jl|jsonl?|jsx?|kts?|less|lisp|lock|lua|m|mdx?|mjs|mli?|mm|nim|nix|patch|php"
    r"|pl|pm|proto|ps1|pyi?|pyx|r|rb|rkt|rs|rst|sass|scala|scss|sh|sol|sql|svelte|svg|swift|tcl|tex"
    r"|tf|toml|tsx?|txt|v|vala|vb|vim|vue|wat|xml|ya?ml|zig|zsh",
    re.IGNORECASE,
)
"""Extensions that make a word without a slash a file: `np.dot` is not one."""


class NamedPath(NamedTuple):
    """A path and its position in a text."""

    path: str
    """Normalized: with slashes, without leading `./` and trailing punctuation."""
    begin: int
    end: int


def paths_in(text: str, names: Collection[str] = ()) -> Iterator[NamedPath]:
    """Yield every word that may be a path: with a dot or a slash, or one of the names."""
    # Cached: the same words come again and again.
    read: dict[str, str] = {}
    for found in _WORD.finditer(text):
        word = found[0]
        path = read.get(word)
        if path is None:
            path = read[word] = _path_of(word, names)
        if path:
            yield NamedPath(path, found.start(), found.start() + len(word.rstrip(".-")))


def _path_of(word: str, names: Collection[str]) -> str:
    """Return the normalized path in a word; "" if it is not a path."""
    # What follows `https:` is a URL.
    if word.startswith("//"):
        return ""
    path = normal_path(word.rstrip(".-"))
    return path if "/" in path or "." in path or path in names else ""


def normal_path(written: str) -> str:
    """Return a path with single slashes, and without `.` parts."""
    return re.sub(r"^(?:\./)+", "", re.sub(r"/{2,}", "/", written.replace("\\", "/")))


def looks_like_a_file(path: str) -> bool:
    """Whether a word is certainly a file: it has an extension, or two slashes."""
    name = path.rpartition("/")[2]
    stem, dot, extension = name.rpartition(".")
    if dot and stem.strip(".") and _EXTENSION.fullmatch(extension):
        return True
    inner = path.strip("/")
    return inner.count("/") >= 2 and not inner.replace("/", "").isdigit()


class ExpectedPaths:
    """Paths that an answer should mention; one that ends in `/` is a folder."""

    def __init__(self, paths: Iterable[str]) -> None:
        self.paths = tuple(paths)
        self._folders = tuple(path for path in self.paths if path.endswith("/"))
        self._by_name = _by_name(self.paths)
        self._above = frozenset(above for path in self.paths for above in _folders_above(path))
        self.names = frozenset(self._by_name)
        """The last parts of the files' paths."""

    def named_by(self, word: str) -> tuple[str, ...]:
        """Return the paths that a word names: a file, and every folder that contains it.

        A file may be named in full, with more before it, or by its end (at least its whole name) if
        no other file has the same end.
        """
        file = self._file_of(word)
        return (*((file,) if file is not None else ()), *self._folders_of(word))

    def _file_of(self, word: str) -> str | None:
        name = word.rpartition("/")[2]
        fitting = [path for path in self._by_name.get(name, ()) if _ends_alike(word, path)]
        if len(fitting) > 1:
            # The longest match in full: `a/b.go` is not `b.go`, if both are expected.
            full = [path for path in fitting if _is_end_of(path, word)]
            return max(full, key=len) if full else None
        return fitting[0] if fitting else None

    def is_above(self, word: str) -> bool:
        """Whether a word is a folder that contains one of them: correct, but not an answer."""
        place = f"/{word.strip('/')}/"
        return any(place.endswith(above) or above.endswith(place) for above in self._above)

    def _folders_of(self, word: str) -> list[str]:
        if "/" not in word:
            return []
        place = f"/{word.strip('/')}/"
        return [path for path in self._folders if f"/{path.lstrip('/')}" in place]


def _folders_above(path: str) -> Iterator[str]:
    """Return `/a/` and `/a/b/` for `a/b/c.go`."""
    parts = path.strip("/").split("/")[:-1]
    return (f"/{'/'.join(parts[: count + 1])}/" for count in range(len(parts)))


def _by_name(paths: Iterable[str]) -> dict[str, list[str]]:
    """Return files by the last part of their path."""
    index: dict[str, list[str]] = {}
    for path in paths:
        if not path.endswith("/"):
            index.setdefault(path.rpartition("/")[2], []).append(path)
    return index


def _ends_alike(one: str, other: str) -> bool:
    return _is_end_of(one, other) or _is_end_of(other, one)


def _is_end_of(end: str, path: str) -> bool:
    """Whether a path ends with another, by whole parts: `math.go` is an end of `embedding/math.go`,
    not of `aftermath.go`."""
    return f"/{path.lstrip('/')}".endswith(f"/{end.lstrip('/')}")


KINDS = ("files", "symbols", "lines", "content")
LONGEST_INLINE_TEXT = 20_000
"""Longer answers are processed in a thread, because that may take a while."""
TOLD_MISSING = 5
LONGEST_RANGE = 100
"""Maximum size of a line range: `1-99999` is no evidence for line 8."""
FLOAT_DUST = 1e-9
_BEFORE, _BEHIND = 60, 120
"""Characters around a path in which a line number belongs to it."""


class MentionsGrader:
    """The answer mentions the expected items."""

    may_block = False

    def __init__(self, spec: GraderSpec, *, threads: Threads) -> None:
        self.name = spec.name
        self._options = spec.options
        self._threads = threads
        self._measure = str(spec.options.get("score") or "recall")
        pass_at = spec.options.get("pass_at")
        self._pass_at = 1.0 if pass_at is None else float(pass_at)

    async def grade(self, subject: Subject) -> Grade:
        wanted = wanted_of(filled(self._options, subject), subject.case)
        text = subject.output.text
        if len(text) > LONGEST_INLINE_TEXT:
            found = await self._threads.call(lambda: look_for(wanted, text))
        else:
            found = look_for(wanted, text)
        score = found.score(self._measure)
        return Grade(
            score=score,
            passed=score >= self._pass_at - FLOAT_DUST,
            reason=found.reason(),
            grader=self.name,
        )


# ---- expected items


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedMentions:
    """The items that an answer should mention."""

    files: tuple[str, ...] = ()
    symbols: tuple[str, ...] = ()
    lines: tuple[tuple[str, int], ...] = ()
    """(path, line)."""
    content: tuple[str, ...] = ()


def wanted_of(options: Mapping[str, Any], case: Case) -> ExpectedMentions:
    """Return the expected items: from the grader's options, or else from the case."""
    truth = _truth_of(case)
    chosen = {kind: options.get(kind) or truth.get(kind) or () for kind in KINDS}
    wanted = ExpectedMentions(
        files=tuple(normal_path(path) for path in _texts("files", chosen["files"])),
        symbols=_texts("symbols", chosen["symbols"]),
        lines=tuple(_lines(chosen["lines"])),
        content=_texts("content", chosen["content"]),
    )
    if not (wanted.files or wanted.symbols or wanted.lines or wanted.content):
        raise CannotGrade(
            f"nothing to look for; give the grader or case '{case.id}' files, symbols, lines or"
            " content"
        )
    return wanted


def _truth_of(case: Case) -> Mapping[str, Any]:
    for place in (case.expect, case.metadata):
        if isinstance(place, Mapping) and isinstance(place.get("ground_truth"), Mapping):
            inner: Mapping[str, Any] = place["ground_truth"]
            return inner
    return case.expect if isinstance(case.expect, Mapping) else {}


def _texts(kind: str, value: Any) -> tuple[str, ...]:
    several = (value,) if isinstance(value, str) else value
    if not isinstance(several, list | tuple):
        raise CannotGrade(f"'{kind}' must be a list of strings, not {quoted(value)}")
    for one in several:
        if not isinstance(one, str) or not one.strip():
            raise CannotGrade(f"'{kind}' must be a list of non-empty strings, not {quoted(one)}")
    return tuple(dict.fromkeys(_composed(one.strip()) for one in several))


def _lines(value: Any) -> Iterable[tuple[str, int]]:
    if not value:
        return
    if not isinstance(value, Mapping):
        raise CannotGrade(f"'lines' must map files to lists of line numbers, not {quoted(value)}")
    for path, numbers in value.items():
        for number in numbers if isinstance(numbers, list | tuple) else (numbers,):
            if not isinstance(path, str) or isinstance(number, bool) or not isinstance(number, int):
                raise CannotGrade(f"'lines' must map files to line numbers, not {quoted(number)}")
            yield normal_path(_composed(path)), number


# ---- mentioned items


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundMentions:
    """Which expected items an answer mentions."""

    wanted: int
    missing: tuple[str, ...]
    """Descriptions: `file a.go`, `symbol Foo`."""
    right_files: int
    """Expected files that it names."""
    wrong_files: tuple[str, ...]
    """Other files that it names."""
    judges_files: bool
    """False: no file was expected, so none can be wrong."""

    @property
    def recall(self) -> float:
        return (self.wanted - len(self.missing)) / self.wanted

    @property
    def precision(self) -> float:
        if not self.judges_files:
            return 1.0
        named = self.right_files + len(self.wrong_files)
        return self.right_files / named if named else 0.0

    def score(self, measure: str) -> float:
        if measure == "recall" or (measure == "f1" and not self.judges_files):
            return self.recall
        if measure == "precision":
            return self.precision
        both = self.precision + self.recall
        return 2 * self.precision * self.recall / both if both else 0.0

    def reason(self) -> str:
        there = self.wanted - len(self.missing)
        text = f"recall {self.recall:.2f} ({there} of {self.wanted})"
        if self.judges_files:
            text += f", precision {self.precision:.2f}, F1 {self.score('f1'):.2f}"
        parts = [text]
        if self.missing:
            parts.insert(0, f"not mentioned: {_listed(self.missing)}")
        if self.wrong_files:
            parts.append(f"not expected: {_listed(self.wrong_files)}")
        return "; ".join(parts)


def look_for(wanted: ExpectedMentions, answer: str) -> FoundMentions:
    """Return which expected items an answer mentions, and which other files it names."""
    text = _composed(answer)
    paths = ExpectedPaths(dict.fromkeys((*wanted.files, *(path for path, _ in wanted.lines))))
    words = list(paths_in(text, paths.names))
    named = {word: paths.named_by(word) for word in {one.path for one in words}}
    right = {path for several in named.values() for path in several}
    right |= {path for path in wanted.files if " " in path and _has_whole(text, path)}
    lines = _lines_named(text, words, named) if wanted.lines else set()
    squeezed = " ".join(text.split()) if wanted.content else ""
    missing = [
        *(f"file {path}" for path in wanted.files if path not in right),
        *(f"symbol {one}" for one in wanted.symbols if not _has_whole(text, one)),
        *(f"line {path}:{line}" for path, line in wanted.lines if (path, line) not in lines),
        *(
            f"content {quoted(one)}"
            for one in wanted.content
            if " ".join(one.split()) not in squeezed
        ),
    ]
    wrong = (
        path
        for path, expected in named.items()
        if not expected and looks_like_a_file(path) and not paths.is_above(path)
    )
    every = (wanted.files, wanted.symbols, wanted.lines, wanted.content)
    return FoundMentions(
        wanted=sum(len(kind) for kind in every),
        missing=tuple(missing),
        right_files=len(right),
        wrong_files=tuple(sorted(wrong)),
        judges_files=bool(wanted.files or wanted.lines),
    )


def _has_whole(text: str, name: str) -> bool:
    """Whether a name occurs as a whole word, if its ends are letters."""
    at = text.find(name)
    while at >= 0:
        before, behind = text[at - 1 : at], text[at + len(name) : at + len(name) + 1]
        if not (_is_word(name[0]) and _is_word(before)) and not (
            _is_word(name[-1]) and _is_word(behind)
        ):
            return True
        at = text.find(name, at + 1)
    return False


def _is_word(character: str) -> bool:
    r"""Whether it is part of a word; combining marks are, but `\w` excludes them."""
    if not character:
        return False
    return character.isalnum() or character == "_" or unicodedata.category(character)[0] == "M"


def _composed(text: str) -> str:
    return unicodedata.normalize("NFC", text)


# ---- lines

_NUMBERED = re.compile(
    r"(?:^:|#L|\blines?\b:?|\bL(?=\d))\s{0,3}((?:\d{1,7}|[\s,&\u2013-]|L(?=\d)|and\b|to\b){1,100})",
    re.IGNORECASE,
)
_RANGE = re.compile(r"(\d{1,7})(?:\s*(?:-|\u2013|to)\s*L?(\d{1,7}))?")


def _lines_named(
    text: str, words: Sequence[NamedPath], named: Mapping[str, tuple[str, ...]]
) -> set[tuple[str, int]]:
    """Yield (path, line) for every line number next to a path that is closer than any other
    path."""
    places = [
        (one, named[one.path]) for one in words if named[one.path] or looks_like_a_file(one.path)
    ]
    lines: set[tuple[str, int]] = set()
    for number, (place, paths) in enumerate(places):
        if not paths:
            continue
        last = places[number - 1][0].end if number else 0
        following = places[number + 1][0].begin if number + 1 < len(places) else len(text)
        behind = text[place.end : min(following, place.end + _BEHIND)]
        before = text[max(last, place.begin - _BEFORE) : place.begin]
        numbers = (*_numbers(behind), *_numbers(before))
        lines.update((path, line) for path in paths for line in numbers)
    return lines


def _numbers(text: str) -> Iterable[int]:
    for found in _NUMBERED.finditer(text):
        for first, last in _RANGE.findall(found[1]):
            begin, end = int(first), int(last or first)
            if 0 <= end - begin <= LONGEST_RANGE:
                yield from range(begin, end + 1)


def _listed(items: Sequence[str]) -> str:
    return some([one if len(one) <= 100 else f"{one[:100]}…" for one in items], TOLD_MISSING)
