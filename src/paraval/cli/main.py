"""`paraval`: the commands, and how errors become messages and exit codes.

A command's module is imported when the command is called, so that `paraval --help` is quick.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import threading
import traceback
from typing import NoReturn

import click

from paraval import __version__
from paraval.cli.error_messages import (
    EXIT_INPUT_OUTPUT,
    EXIT_INTERRUPTED,
    EXIT_NO_READER,
    EXIT_OUR_FAULT,
    EXIT_WRONG_REQUEST,
    complain,
    discard_stdout,
    exit_code_of,
    talk,
)
from paraval.cli.help import SuggestingGroup, example
from paraval.errors import ParavalError, RequestError
from paraval.garbage import few_collections, made_to_stay, no_more_collections

COMMANDS = {
    "run": ("run", "Run a suite, or a folder of suites, and print the report."),
    "resume": ("run", "Resume a run that was interrupted, killed or stopped by its budget."),
    "regrade": ("run", "Grade a run's stored answers again, with changed graders."),
    "control": ("run", "Change a running run: parallelism, budget, cancel a trial, stop."),
    "race": ("race", "Race code changes: which pass the tests, and which is fastest?"),
    "plan": ("plan", "Show what would run, and estimate its time and cost."),
    "pairwise": (
        "compare",
        "Ask a judge which of two variants' answers is better, in both orders.",
    ),
    "show": ("show", "Show a case: what was asked, what came back, and why it failed."),
    "report": ("report", "Show a run's report; -o also writes it to files."),
    "view": ("report", "Open a local viewer of runs in a browser, also while they run."),
    "compare": ("compare", "Compare two runs or variants: is one better?"),
    "history": ("report", "Show a suite's pass rate, cost and time over its runs."),
    "runs": ("runs", "List the runs in the store; remove or keep some, and show their size."),
    "clean": ("runs", "Remove old runs from the store: `runs remove`."),
    "label": ("label", "Label answers by hand, and see how far a judge agrees with you."),
    "logs": ("logs", "Print the output of a run's attempts and graders."),
    "diff": ("diff", "Print what attempts changed in their workspaces."),
    "badge": ("badge", "Write a suite's latest figures into a prompt file or a JSON file."),
    "baseline": ("compare", "Set, show or clear the run that a suite is compared with."),
    "init": ("init", "Write a suite to start from."),
    "import": ("imports", "Write a suite from what you have: promptfoo, SWE-bench, and others."),
    "demo": ("init", "See paraval at work: no key, no network."),
    "doctor": ("doctor", "Check your setup."),
    "completion": ("completion", "Complete commands in your shell with Tab."),
    "schema": ("plan", "Print the JSON Schema of suite, race or report files."),
    "simulate": ("simulate", "Simulate the schedule of a very large run: time and bottleneck."),
    "loopback": ("simulate", "Serve simulated models on this machine, for tests and agents."),
}
"""Name -> module in `commands`, and the line in `paraval --help`."""

GROUPS = {
    "Run": ("run", "resume", "control", "race", "plan"),
    "Read results": (
        "show",
        "report",
        "view",
        "compare",
        "pairwise",
        "regrade",
        "history",
        "runs",
        "clean",
        "label",
        "logs",
        "diff",
        "badge",
        "baseline",
    ),
    "Set up": (),
}
"""Heading -> commands; the last group has all that no other names."""

EXAMPLES = {
    "Run": "paraval run suite.yaml -o report.html",
    "Read results": "paraval compare last~1 last",
    "Set up": "paraval init my-evals",
    "run": "paraval run suite.yaml --models small,large -o report.html",
    "resume": "paraval resume last --budget 5",
    "regrade": "paraval regrade last",
    "control": "paraval control last --parallel 8",
    "race": "paraval race race.yaml --apply",
    "plan": "paraval plan suite.yaml --repeats 3",
    "report": "paraval report last -o report.html",
    "view": "paraval view",
    "compare": "paraval compare last~1 last",
    "pairwise": "paraval pairwise last --model judge --rubric rubric.md --budget 2",
    "history": "paraval history suite.yaml --limit 10",
    "runs": "paraval runs --limit 50",
    "clean": "paraval clean --keep 20 --older-than 30d",
    "label": "paraval label last --sample 30",
    "show": "paraval show last --case capital-france --variant model=small",
    "logs": "paraval logs last --case capital-france",
    "diff": "paraval diff last --case fix-it | git apply",
    "badge": "paraval badge prompt.md --suite suite.yaml",
    "baseline": "paraval baseline set last",
    "init": "paraval init my-evals --template prompts",
    "import": "paraval import promptfoo promptfooconfig.yaml --to evals",
    "demo": "paraval demo -o demo.html",
    "doctor": "paraval doctor",
    "schema": "paraval schema > suite.schema.json",
    "simulate": "paraval simulate --trials 100000 --slots 1000 --requests-per-minute 1500",
    "loopback": "paraval loopback --port 8080",
    "completion": "paraval completion install",
}
"""Group or command -> one command line, shown in its help."""


class LazyGroup(SuggestingGroup):
    """Commands by name, each imported when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:  # noqa: ARG002
        if name not in COMMANDS:
            return None
        with made_to_stay():
            module = importlib.import_module(f"paraval.cli.commands.{COMMANDS[name][0]}")
        command: click.Command = getattr(module, f"{name}_command")
        epilog = command.epilog or ""
        if name in EXAMPLES and "Example" not in epilog:
            command.epilog = f"{example(EXAMPLES[name])}\n\n{epilog}"
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        grouped = {name for names in GROUPS.values() for name in names}
        # One width, so that the groups line up.
        width = max(map(len, COMMANDS))
        for heading, known in GROUPS.items():
            names = known or [name for name in COMMANDS if name not in grouped]
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), COMMANDS[name][1]) for name in names])
                formatter.write_text(f"Example: {EXAMPLES[heading]}")


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""New here? Run `paraval demo`, then `paraval init`. `paraval COMMAND --help` shows a
    command's options.

    Exit codes: 0 gate passed or none required, 1 gate failed, 2 invalid request, 3 gate
    undecided or nothing judged, 75 run is in use by another process, 130 interrupted.""",
)
@click.version_option(__version__, prog_name="paraval")
def paraval() -> None:
    """Run evals of models, prompts, agents and code in parallel, and know which differences are
    real."""


def main() -> None:
    """Entry point of the `paraval` command."""
    few_collections()
    if asked := os.environ.get("_PARAVAL_COMPLETE"):
        # A shell completes a line: commands are not loaded for that.
        from paraval.cli.completion import answer  # noqa: PLC0415 - see above

        sys.exit(answer(asked, paraval))
    if sys.stderr is None:
        # Started with stderr closed; libraries expect it to exist.
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115 - until the program ends
    if os.environ.get("GITHUB_ACTIONS") == "true":
        # Only there: GitHub Actions runs printed commands, whoever wrote them.
        from paraval.cli.inert_streams import make_streams_inert  # noqa: PLC0415 - see above

        make_streams_inert()
    code = _exit_code()
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        discard_stdout()
    _leave(code)


def _leave(code: int) -> NoReturn:
    """End the program, even if an abandoned function still runs in a thread."""
    threads = (one for one in threading.enumerate() if one is not threading.main_thread())
    if any(not one.daemon for one in threads):
        # Everything is written and flushed; waiting for them might take forever.
        with contextlib.suppress(OSError):
            sys.stderr.flush()
        os._exit(code)
    no_more_collections()
    sys.exit(code)


def _exit_code() -> int:
    try:
        return int(paraval.main(standalone_mode=False) or 0)
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.ClickException as error:
        error.show()
        return EXIT_WRONG_REQUEST
    except (click.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    except SystemExit as ended:
        # click exits with 1 when the reader of our output has gone, and never otherwise.
        if ended.code != 1:
            raise
        discard_stdout()
        return EXIT_NO_READER
    except ParavalError as error:
        complain(error)
        return exit_code_of(error)
    except BrokenPipeError:
        # The reader of our output has gone: same code as a death by SIGPIPE.
        discard_stdout()
        return EXIT_NO_READER
    except OSError as error:
        complain(RequestError(f"cannot continue: {error}"))
        discard_stdout()
        return EXIT_INPUT_OUTPUT
    except Exception:  # noqa: BLE001 - exit code 1 would mean that the gate failed
        talk(traceback.format_exc().rstrip("\n"))
        talk("This is a bug in paraval. Please report it with the lines above.")
        return EXIT_OUR_FAULT
