"""`paraval`: the group of commands, and how errors become messages and exit codes.

A command's module is loaded when the command is called, so that `paraval --help` is quick.
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
    exit_code_of,
    let_go_of_stdout,
    talk,
)
from paraval.errors import ParavalError, RequestError
from paraval.garbage import few_collections, made_to_stay, no_more_collections

COMMANDS = {
    "run": ("run", "Run a suite, in parallel, and report."),
    "resume": ("run", "Go on with a run that was interrupted, killed or held back."),
    "race": ("race", "Race candidate changes to code: who is right, and fastest?"),
    "plan": ("plan", "Tell what would run, in which order, and how long it would take."),
    "runs": ("report", "List the runs in the store."),
    "report": ("report", "Show a run's report, or write it to files."),
    "compare": ("compare", "Tell whether one run or variant is better than another."),
    "baseline": ("baseline", "Set, show or clear the run that a suite is held against."),
    "history": ("history", "Show a suite's pass rate, cost and time over its runs."),
    "badge": ("badge", "Write a suite's latest figures into a prompt file or a JSON file."),
    "logs": ("logs", "Print what the attempts of a run and their graders wrote."),
    "diff": ("diff", "Print what attempts changed in their workspaces."),
    "init": ("init", "Write a suite that runs, to begin with."),
    "demo": ("demo", "See paraval at work: no key, no network."),
    "schema": ("plan", "Print the JSON Schema of suite or race files, for editors."),
    "loopback": ("loopback", "Serve simulated models on this machine, for tests and agents."),
    "doctor": ("doctor", "Check your setup."),
    "completion": ("completion", "Complete commands in your shell with Tab."),
}


class LazyGroup(click.Group):
    """Commands by name, in the order of their use."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:  # noqa: ARG002
        if name not in COMMANDS:
            return None
        with made_to_stay():
            module = importlib.import_module(f"paraval.cli.commands.{COMMANDS[name][0]}")
        command: click.Command = getattr(module, f"{name}_command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with `paraval demo`, then `paraval init`. Exit codes: 0 gate passed,"
    " 1 gate failed, 2 wrong request, 3 gate undecided, 75 run is busy, 130 interrupted.",
)
@click.version_option(__version__, prog_name="paraval")
def paraval() -> None:
    """Runs evaluations in parallel and tells the truth about them."""


def main() -> None:
    """The program's entry."""
    few_collections()
    if asked := os.environ.get("_PARAVAL_COMPLETE"):
        # A shell completes a line: commands are not loaded for that.
        from paraval.cli.completion import answer  # noqa: PLC0415 - see above

        sys.exit(answer(asked))
    if sys.stderr is None:
        # Started with stderr closed; libraries expect that there is one.
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115 - for as long as we live
    if os.environ.get("GITHUB_ACTIONS") == "true":
        # Only there, where what is printed may be a command, whoever wrote it.
        from paraval.cli.inert_streams import make_streams_inert  # noqa: PLC0415 - see above

        make_streams_inert()
    code = _exit_code()
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        let_go_of_stdout()
    _leave(code)


def _leave(code: int) -> NoReturn:
    """Ends the program, also where a function left behind still runs in a thread."""
    others = (one for one in threading.enumerate() if one is not threading.main_thread())
    if any(not one.daemon for one in others):
        # All is written and flushed; to wait for them might take for ever.
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
        # 1 is click's own answer to a reader who has gone, and the only one it gives this way.
        if ended.code != 1:
            raise
        let_go_of_stdout()
        return EXIT_NO_READER
    except ParavalError as error:
        complain(error)
        return exit_code_of(error)
    except BrokenPipeError:
        # Whoever read our output has gone: what a shell calls death by SIGPIPE.
        let_go_of_stdout()
        return EXIT_NO_READER
    except OSError as error:
        complain(RequestError(f"cannot go on: {error}"))
        let_go_of_stdout()
        return EXIT_INPUT_OUTPUT
    except Exception:  # noqa: BLE001 - 1 would say that the gate failed
        talk(traceback.format_exc().rstrip("\n"))
        talk("This is a fault of paraval itself; please report it, with the lines above.")
        return EXIT_OUR_FAULT
