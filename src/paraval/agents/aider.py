"""aider: plain text, and exit code 0 whatever happened. It reports no tools, and rounds its tokens.

Its output has a line with token counts after each answer: without one there is no result, and an
error after the last one is how it ended. The model's messages are in aider's chat history: on
stdout, aider's own remarks are between the model's lines.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from paraval.agents.json_output import LARGEST_AMOUNT, clean, in_words, last_line, last_lines
from paraval.agents.program import AgentEnd, AgentJob, Launch, Login, Transcript, TranscriptReading
from paraval.agents.provider_errors import end_in, end_of_litellm, wait_in
from paraval.agents.steps import text_steps
from paraval.records import Activity, Provider

_QUIET = (
    *("--yes-always", "--no-pretty", "--no-stream", "--no-fancy-input", "--no-notifications"),
    *("--no-check-update", "--no-show-release-notes", "--no-show-model-warnings"),
    *("--analytics-disable", "--no-detect-urls", "--no-suggest-shell-commands"),
    # Its changes are read from the working tree: no commits, and no edits of .gitignore.
    *("--no-auto-commits", "--no-dirty-commits", "--no-gitignore"),
)

_VERSION = re.compile(r"^Aider v(\S+)\s*$", re.MULTILINE)
_AMOUNT = r"(\d[\d,]*(?:\.\d+)?)([kM]?)"
_TOKENS = re.compile(rf"^Tokens: {_AMOUNT} sent(?:, [^\n]*?)?, {_AMOUNT} received\.", re.MULTILINE)
_COST = re.compile(r"Cost: \$[\d.]+ message, \$(\d+(?:\.\d+)?) session\.")
_LITELLM = re.compile(r"^litellm\.(\w+): ?(.*)$", re.MULTILINE)
_OWN_LINE = re.compile(
    r"^(?:Tokens: |Cost: \$|litellm\.\w+: |Retrying in [\d.]+ seconds\.\.\.|The API provider\b"
    r"|Initial repo scan can be slow |Repo-map can't include |Applied edit to |Creating empty file "
    r"|Skipping edits to |Only \d+ reflections allowed)"
)
"""aider's own lines on stdout."""
_RESPONSE = re.compile(
    r"^LLM RESPONSE \d{4}-\d\d-\d\dT[\d:]{8}\n((?:ASSISTANT .*\n)*)", re.MULTILINE
)
"""In its history, every line of a message begins with the speaker's name."""
_RETRY = re.compile(
    r"^litellm\.RateLimitError\b.*\n(?:.*\n){0,3}?Retrying in [\d.]+ seconds", re.MULTILINE
)
_OTHER_ERROR = re.compile(
    r"^(?:API Error: \d{3}\b.*|No LLM model was specified and no API keys were provided.*"
    r"|The (?:\w+ )?API provider(?:'s servers)? (?:is|are|has|was|timed out)\b.*"
    r"|Insufficient credits with the API provider.*|Model \S+ has hit a token limit!.*)$",
    re.MULTILINE,
)
"""aider's own error messages, each on its own line; text that only discusses errors does not
match."""


class Aider:
    """`aider --message-file`."""

    name = "aider"
    programs: tuple[str, ...] = ("aider",)
    version_arguments: tuple[str, ...] = ("--version",)
    login = Login(
        key_variables=(
            "ANTHROPIC_API_KEY",
            "OPENAI_API_KEY",
            "GEMINI_API_KEY",
            "DEEPSEEK_API_KEY",
            "OPENROUTER_API_KEY",
        ),
        files=(".aider.conf.yml", ".aider/oauth-keys.env"),
        command="put a key into ~/.aider.conf.yml",
    )
    speaks = frozenset({Provider.OPENAI, Provider.LOOPBACK})
    takes = frozenset({"model"})
    takes_in_own_home: frozenset[str] = frozenset()
    install = "python -m pip install aider-chat"

    def launch(self, job: AgentJob) -> Launch:
        prompt = f"{job.temp}/aider-prompt.md"
        # It wraps lines at the terminal's width, including those of the answer and the cost.
        env = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "COLUMNS": "10000"}
        model = job.model
        if job.endpoint is not None:
            model = f"openai/{job.endpoint.model}"
            env["OPENAI_API_BASE"] = job.endpoint.base_url
            env["OPENAI_API_KEY"] = job.endpoint.api_key
        # Otherwise these would be in the workspace, and be taken for its work.
        histories = (
            option
            for kind in ("input", "chat", "llm")
            for option in (f"--{kind}-history-file", _history(job, kind))
        )
        return Launch(
            argv=(
                *job.program,
                *("--message-file", prompt),
                *_QUIET,
                *histories,
                *(("--model", model) if model else ()),
                *job.arguments,
            ),
            env=env,
            files={prompt: job.prompt},
            # Its repository map, which no option puts elsewhere.
            litter=(".aider.tags.cache.v*",),
        )

    def result_files(self, job: AgentJob) -> tuple[str, ...]:
        return (_history(job, "llm"),)

    def read(
        self, job: AgentJob, transcript: Transcript, files: Mapping[str, str]
    ) -> TranscriptReading:
        text = clean(transcript.stdout).replace("\r\n", "\n")
        version = _VERSION.search(text)
        answers = list(_TOKENS.finditer(text))
        cost = None
        for match in _COST.finditer(text):
            cost = float(match[1])
        responses = _responses(files.get(_history(job, "llm"), ""))
        end = answers[-1].end() if answers else None
        answer = responses[-1] if responses else _without_own_lines(text[:end])
        return replace(
            _ended(text, end, transcript, answer),
            activity=Activity(
                turns=len(answers),
                tells_tools=False,
                version=version[1] if version else None,
            ),
            steps=text_steps(responses or [answer]),
            usage=_usage(answers),
            cost_usd=cost,
            has_worked=bool(answers),
            requests=len(answers) or None,
            refusals=len(_RETRY.findall(text)),
        )


def _history(job: AgentJob, kind: str) -> str:
    return f"{job.temp}/aider-{kind}-history"


def _ended(
    text: str, answered: int | None, transcript: Transcript, answer: str
) -> TranscriptReading:
    rest = text[answered or 0 :]
    error = _error_in(f"{rest}\n{last_lines(transcript.stderr)}")
    if error is not None:
        return error
    if transcript.exit_code == 0 and answered is not None:
        notes = ("aider rounds its token counts and does not report tool calls",)
        return TranscriptReading(answer=answer, notes=notes)
    complaint = last_line(transcript.stderr)
    message = complaint or last_line(rest) or "it printed nothing"
    if transcript.exit_code == 0:
        return TranscriptReading(end=AgentEnd.NO_RESULT, message=message)
    return TranscriptReading(end=end_in(complaint) or AgentEnd.BROKEN, message=message)


def _error_in(text: str) -> TranscriptReading | None:
    """Return the last error that it printed, and its kind of end."""
    found = None
    for found in _LITELLM.finditer(text):  # noqa: B007 - the last one is wanted
        pass
    if found is not None:
        end = end_of_litellm(found[1], found[2]) or end_in(found[2]) or AgentEnd.BROKEN
        return TranscriptReading(end=end, message=in_words(found[0]), retry_after=wait_in(found[2]))
    other = _OTHER_ERROR.search(text)
    if other is None:
        return None
    words = other[0]
    no_key = words.startswith("No LLM model was specified")
    end = AgentEnd.NO_LOGIN if no_key else end_in(words) or AgentEnd.BROKEN
    return TranscriptReading(end=end, message=in_words(words))


def _responses(history: str) -> list[str]:
    """Return the model's messages unchanged; empty if the history is missing."""
    return [
        "\n".join(line.removeprefix("ASSISTANT ") for line in response.split("\n")).strip()
        for response in _RESPONSE.findall(f"{clean(history)}\n")
        if response
    ]


def _without_own_lines(text: str) -> str:
    """Return stdout after the banner, without aider's own lines.

    For a custom agent with aider's output format, which leaves no history.
    """
    version = _VERSION.search(text)
    if version is not None:
        _, _, text = text[version.start() :].partition("\n\n")
    return "\n".join(line for line in text.split("\n") if not _OWN_LINE.match(line)).strip()


def _usage(answers: list[re.Match[str]]) -> Mapping[str, float]:
    if not answers:
        return {}
    usage = {
        "input_tokens": sum(_amount(one[1], one[2]) for one in answers),
        "output_tokens": sum(_amount(one[3], one[4]) for one in answers),
    }
    return usage if all(amount <= LARGEST_AMOUNT for amount in usage.values()) else {}


def _amount(digits: str, unit: str) -> float:
    return float(digits.replace(",", "")) * {"": 1, "k": 1_000, "M": 1_000_000}[unit]
