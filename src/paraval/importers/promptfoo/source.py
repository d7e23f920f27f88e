"""The files of a promptfoo config: YAML with anchors, `file://` references and Nunjucks."""

from __future__ import annotations

import glob
import itertools
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from jinja2 import ChainableUndefined, TemplateError
from jinja2.sandbox import SandboxedEnvironment

from paraval.documents.json import read_json
from paraval.documents.problems import shown
from paraval.documents.scalars import plain, read_scalar
from paraval.errors import Problem
from paraval.importers.imported import NotHonored, SourceFiles
from paraval.templates.jinja import dump
from paraval.text.words import counted

FILE = "file://"
PLAIN_FIELD = re.compile(r"\{\{-?\s*([A-Za-z_]\w*(?:\.\w+)*)\s*-?\}\}")
_ENVIRONMENT_FIELD = re.compile(r"\{\{-?\s*env(?:\.(\w+)|\[['\"](\w+)['\"]\])\s*-?\}\}")
_LISTED_ALIKE = 5
"""Keys that differ only in their positions, with the same reason: more than this are counted."""


class Source(SourceFiles):
    """A config's folder, and what has been found while it was read."""

    def __init__(self, config: Path) -> None:
        super().__init__()
        self.config = config
        self.folder = config.resolve().parent
        self.not_honored: list[NotHonored] = []
        self.notes: dict[str, None] = {}
        self.files: dict[str, str] = {}
        """Files to write beside the suite."""

    def report(self, key: str, message: str) -> None:
        """An error in the config itself."""
        problem = Problem(message=message, file=str(self.config), key=key)
        self.problems[problem] = None

    def leave_out(self, key: str, why: str) -> None:
        self.not_honored.append(NotHonored(key=key, why=why))

    def leave_out_rest(
        self, written: Any, known: Iterable[str], path: str, why: Mapping[str, str]
    ) -> dict[str, Any]:
        """List the keys that nothing reads; return the mapping, empty if it is none."""
        if not isinstance(written, dict):
            if written is not None:
                self.leave_out(path, f"must be a mapping, not {shown(written)}")
            return {}
        for key in written:
            if key not in known:
                at = f"{path}.{key}" if path else key
                self.leave_out(at, why.get(key, "has no equivalent"))
        return written

    def paths(self, pattern: str) -> list[Path]:
        """Return the files that a path or glob means; a missing one is a problem."""
        name = pattern.removeprefix(FILE)
        if not glob.has_magic(name):
            return [self.folder / name]
        found = sorted(self.folder.glob(name.removeprefix("./")))
        if not found:
            self.spot(self.config).report(f"no file matches {shown(pattern)}")
        return found

    def data(self, path: Path) -> Any:
        """Read a YAML, JSON or JSONL file."""
        if path.suffix == ".jsonl":
            return [data for data, _ in self.lines(path)]
        text = self.text(path)
        return self.parse(text, path) if text.strip() else None

    def parse(self, text: str, path: Path) -> Any:
        spot = self.spot(path)
        if path.suffix == ".json":
            document = read_json(text, spot)
            return None if document is None else plain(document.data)
        try:
            return yaml.load(text, Loader=_Yaml)  # noqa: S506 - a SafeLoader
        except (yaml.YAMLError, ValueError) as error:
            mark = getattr(error, "problem_mark", None)
            problem = getattr(error, "problem", None) or str(error).splitlines()[0]
            line = None if mark is None else mark.line + 1
            replace(spot, line=line).report(f"not valid YAML: {problem}")
            return None

    def value(self, written: Any, path: str) -> Any:
        """Return a value, or what the text or data file that it names contains."""
        if not isinstance(written, str) or not written.startswith(FILE):
            return written
        file = self.folder / written.removeprefix(FILE)
        if file.suffix in (".yaml", ".yml", ".json"):
            return self.data(file)
        if file.suffix in (".txt", ".md", ".j2", ".html", ".xml", ".sql", ".csv"):
            return self.text(file).strip()
        self.leave_out(path, f"{written}: only text, JSON and YAML files are read")
        return None

    def values(self, written: Any, path: str) -> Any:
        """Return data with the contents of the files that it names, at any depth."""
        match written:
            case dict():
                return {key: self.values(one, f"{path}.{key}") for key, one in written.items()}
            case list():
                return [self.values(one, f"{path}[{at}]") for at, one in enumerate(written)]
        return self.value(written, path)

    def all_not_honored(self) -> tuple[NotHonored, ...]:
        """Return what was left out; of many keys that differ only in positions, the first."""
        alike: dict[tuple[str, str], list[NotHonored]] = {}
        for one in dict.fromkeys(self.not_honored):
            alike.setdefault((re.sub(r"\[\d+\]", "[]", one.key), one.why), []).append(one)
        found: list[NotHonored] = []
        for group in alike.values():
            if len(group) <= _LISTED_ALIKE:
                found += group
            else:
                key = f"{group[0].key} and {counted(len(group) - 1, 'more')[:-1]} like it"
                found.append(NotHonored(key=key, why=group[0].why))
        return tuple(found)


def as_list(written: Any) -> list[Any]:
    """Return a list as it is, nothing as an empty one, and anything else as the only item."""
    return written if isinstance(written, list) else [] if written is None else [written]


class _Yaml(yaml.CSafeLoader):
    """YAML 1.2 as promptfoo reads it, with anchors."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - PyYAML's


_Yaml.add_implicit_resolver("tag:yaml.org,2002:merge", re.compile(r"<<\Z"), ["<"])
_Yaml.add_implicit_resolver("!plain", re.compile(""), None)
_Yaml.add_constructor("!plain", lambda _loader, node: plain(read_scalar(node.value)))


def with_environment(written: Any, values: Mapping[str, Any], path: str, source: Source) -> Any:
    """Fill in `{{env.NAME}}`: values of the config's own `env`, and `${NAME}` for others."""
    match written:
        case dict():
            return {
                key: with_environment(inner, values, f"{path}.{key}" if path else key, source)
                for key, inner in written.items()
            }
        case list():
            return [
                with_environment(inner, values, f"{path}[{at}]", source)
                for at, inner in enumerate(written)
            ]
        case str() if "env" in written:
            names = {found[1] or found[2]: "" for found in _ENVIRONMENT_FIELD.finditer(written)}
            for name in names.keys() - values.keys():
                if path.startswith(("prompts", "tests", "defaultTest", "scenarios")):
                    why = f"the variable {name} is not in `env`; replace ${{{name}}} by its value"
                    source.leave_out(path, why)
            return _ENVIRONMENT_FIELD.sub(
                lambda found: str(values.get(found[1] or found[2], f"${{{found[1] or found[2]}}}")),
                written,
            )
    return written


def with_references(written: Any, root: Any) -> Any:
    """Replace `{$ref: '#/a/b'}` by the part of the config that it names."""
    match written:
        case {"$ref": str(name), **rest} if name.startswith("#/"):
            found = root
            for step in name[2:].split("/"):
                found = found.get(step) if isinstance(found, dict) else None
            found = with_references(found, root)
            return {**found, **rest} if isinstance(found, dict) else found
        case dict():
            return {key: with_references(inner, root) for key, inner in written.items()}
        case list():
            return [with_references(inner, root) for inner in written]
    return written


@cache
def nunjucks() -> SandboxedEnvironment:
    """Jinja with what Nunjucks does otherwise: undefined names print nothing."""
    environment = SandboxedEnvironment(
        undefined=ChainableUndefined,
        finalize=_as_javascript,
        keep_trailing_newline=True,
    )
    environment.filters["dump"] = dump
    return environment


def _as_javascript(value: Any) -> Any:
    match value:
        case None:
            return ""
        case bool() | dict():
            return dump(value)
        case list():
            return ",".join(str(_as_javascript(one)) for one in value)
    return value


_TAG = re.compile(r"\{%-?\s*raw\s*-?%\}.*?\{%-?\s*endraw\s*-?%\}|\{%.*?%\}|\{#.*?#\}", re.DOTALL)


def with_line_breaks(template: str) -> str:
    """Mark the tags of a Nunjucks template so that a `.j2` file keeps the space around them."""

    def marked(found: re.Match[str]) -> str:
        tag = re.sub(r"^(\{[%#])(?![-+])", r"\1+", found[0])
        tag = re.sub(r"(?<![-+])([%#]\})$", r"+\1", tag)
        return re.sub(r"\{%(?=\s*endraw\s*[-+]?%\}$)", "{%+", tag)

    return _TAG.sub(marked, template)


def rendered(written: Any, values: Mapping[str, Any]) -> Any:
    """Fill in a test's variables, at any depth; text that is no template stays as it is."""
    match written:
        case str() if "{{" in written or "{%" in written:
            try:
                return nunjucks().from_string(written).render(values)
            except (TemplateError, TypeError, ValueError):
                return written
        case dict():
            return {key: rendered(inner, values) for key, inner in written.items()}
        case list():
            return [rendered(inner, values) for inner in written]
    return written


# ---- prompts


def messages_in(raw: str) -> tuple[Mapping[str, str], ...] | None:
    """Return the messages of a prompt in JSON; None if it is text, () if they are not plain."""
    if not raw.lstrip().startswith("["):
        return None
    try:
        written = json.loads(raw)
    except ValueError:
        return None
    if not isinstance(written, list) or not all(
        isinstance(one, dict) and "role" in one for one in written
    ):
        return None
    found: list[Mapping[str, str]] = []
    for one in written:
        content = one.get("content")
        if isinstance(content, list) and all(
            isinstance(part, dict) and part.get("type") in ("text", "input_text")
            for part in content
        ):
            content = "\n".join(str(part.get("text", "")) for part in content)
        role = "system" if one["role"] == "developer" else one["role"]
        if not isinstance(content, str) or role not in ("system", "user", "assistant"):
            return ()
        found.append({"role": role, "content": content})
    return tuple(found)


def plain_template(raw: str, *, braces: bool = False) -> str | None:
    """Return a prompt as a template of paraval; None if only Jinja can express it.

    `braces`: double the braces that are text.
    """
    pieces = PLAIN_FIELD.split(raw)
    rest = "".join(pieces[::2])
    if re.search(r"\{\{|\{%|\{#" if braces else r"[{}]", rest):
        return None
    texts = [piece.replace("{", "{{").replace("}", "}}") for piece in pieces[::2]]
    fields = [f"{{input.{name}}}" for name in pieces[1::2]]
    return "".join(itertools.chain(*itertools.zip_longest(texts, fields, fillvalue="")))
