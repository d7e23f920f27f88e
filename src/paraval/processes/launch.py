"""Start one command, or say in a sentence why it cannot be started."""

from __future__ import annotations

import errno
import os

from paraval.processes.light import signal

TYPE_CHECKING = False  # without `typing`, which takes longer to load than all the rest
if TYPE_CHECKING:
    from typing import Any

CHANNEL_FD = 3
_RESETTABLE = sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})
_TRANSIENT = {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ETXTBSY}


class LaunchError(Exception):
    """Nothing was started."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.report = {
            "code": errno.errorcode.get(number, str(number)),
            "message": message,
            "transient": number in _TRANSIENT,
        }


def launch(request: dict[str, Any], fds: dict[int, int]) -> int:
    """Start it in a session of its own with exactly these file descriptors, and tell its pid.

    It changes the folder of the calling process, which must be single-threaded. All descriptors
    there must be close-on-exec (Python's default), and those in `fds` lie above their targets.
    """
    argv, env, folder = request["argv"], request["env"], request["cwd"]
    _enter(folder, argv[0])
    try:
        return _spawn_first(argv, env, fds)
    except ValueError as error:
        raise LaunchError(errno.EINVAL, f"cannot start '{argv[0]}': {error}") from error
    except OSError as error:
        raise LaunchError(error.errno or 0, _sentence(argv, env, error)) from error
    finally:
        # A keeper must not hold on to a workspace that someone wants to remove or unmount.
        os.chdir("/")


def _enter(folder: str, program: str) -> None:
    try:
        os.chdir(folder)
    except OSError as error:
        missing = error.errno == errno.ENOENT
        problem = "it does not exist" if missing else error.strerror
        message = f"cannot start '{program}' in the folder '{folder}': {problem}"
        raise LaunchError(error.errno or 0, message) from error


def _spawn_first(argv: list[str], env: dict[str, str], fds: dict[int, int]) -> int:
    """Start the first program of this name on the command's own PATH that may be started."""
    refusal: OSError = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    for path in _places(argv[0], env):
        try:
            return _spawn(path, argv, env, fds)
        except PermissionError as error:
            refusal = error
    raise refusal


def _places(program: str, env: dict[str, str]) -> list[str]:
    if "/" in program:
        return [program]
    folders = env.get("PATH", os.defpath).split(os.pathsep)
    paths = [f"{folder or '.'}/{program}" for folder in folders]
    # To look first is much cheaper than to have the system try each in a new process.
    return [path for path in paths if os.access(path, os.F_OK)]


def _spawn(path: str, argv: list[str], env: dict[str, str], fds: dict[int, int]) -> int:
    return os.posix_spawn(
        path,
        argv,
        env,
        file_actions=[(os.POSIX_SPAWN_DUP2, fd, target) for target, fd in fds.items()],
        setsid=True,
        setsigmask=[],
        setsigdef=_RESETTABLE,
    )


def _sentence(argv: list[str], env: dict[str, str], error: OSError) -> str:
    program = argv[0]
    if error.errno == errno.ENOENT:
        if error.filename is not None and os.access(error.filename, os.F_OK):
            return f"cannot start '{program}': the interpreter that its first line names is missing"
        where = (
            "there is no such file"
            if "/" in program
            else f"it is not on PATH ({env.get('PATH', os.defpath)})"
        )
        return f"cannot start '{program}': {where}"
    if error.errno == errno.EACCES:
        return f"cannot start '{program}': it is not executable (permission denied)"
    if error.errno == errno.ENOEXEC:
        return f"cannot start '{program}': it is neither a program nor a script with a #! line"
    if error.errno == errno.E2BIG:
        size = sum(map(len, argv)) + sum(len(name) + len(value) for name, value in env.items())
        return (
            f"cannot start '{program}': its arguments and environment ({size} bytes) are more than"
            " the system takes; pass large input on stdin or in a file"
        )
    if error.errno in _TRANSIENT:
        return f"cannot start '{program}' now, the machine is short of something: {error.strerror}"
    return f"cannot start '{program}': {error.strerror}"
