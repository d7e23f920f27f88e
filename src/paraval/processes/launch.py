"""Starts one command, or explains in a sentence why it cannot be started.

It is spawned without copying this process. Only a command with limits is forked, since they must
apply before its program runs.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import resource
import stat
import struct
import sys

from paraval.processes.fast_imports import signal

TYPE_CHECKING = False  # avoids `typing`, which takes longer to load than all the rest
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from paraval.processes.cgroups import CommandCgroups

CHANNEL_FD = 3
_ABOVE_TARGETS = 10
_RESETTABLE = sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})
_TRANSIENT = {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ETXTBSY}

# Landlock: its system calls have the same numbers on every architecture that Python runs on.
_LANDLOCK_CREATE_RULESET = 444
_LANDLOCK_RESTRICT_SELF = 446
_VERSION_WANTED = 1
_FIRST_WITH_SCOPES = 6
_ONLY_ABSTRACT_SOCKETS = struct.pack("=QQQ", 0, 0, 1)
"""No rule for files, none for the network, and one scope: LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET."""
_PR_SET_NO_NEW_PRIVS = 38


class LaunchError(Exception):
    """Nothing was started."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.report = {
            "code": errno.errorcode.get(number, str(number)),
            "message": message,
            "transient": number in _TRANSIENT,
        }


def scopes_abstract_sockets(sandbox: str) -> bool:
    """Whether commands in this sandbox program can be kept from foreign abstract sockets: Linux
    6.12 can do that, unless the program itself must gain privileges first."""
    if sys.platform != "linux" or os.stat(sandbox).st_mode & stat.S_ISUID:  # noqa: PTH116 - light
        return False
    version = ctypes.CDLL(None).syscall(_LANDLOCK_CREATE_RULESET, None, 0, _VERSION_WANTED)
    return int(version) >= _FIRST_WITH_SCOPES


def _leave_abstract_sockets_alone() -> None:
    """From here on, this process and all that it starts reach only abstract sockets of their own.

    Abstract sockets belong to a network, which a sandbox may share, not to a file system, where it
    could hide them. The kernel requires a promise that the sandbox makes anyway: no program gains
    privileges.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    rules = _ONLY_ABSTRACT_SOCKETS
    ruleset = libc.syscall(_LANDLOCK_CREATE_RULESET, rules, len(rules), 0)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if ruleset < 0 or libc.syscall(_LANDLOCK_RESTRICT_SELF, ruleset, 0) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    os.close(ruleset)


class LaunchLimits:
    """Restrictions applied before a command's program runs: its control group, its own limits, and
    in a sandbox no access to foreign abstract sockets, if the kernel supports that."""

    __slots__ = ("_box", "_limits", "_scoped")

    def __init__(self, box: CommandCgroups | None, request: dict[str, Any]) -> None:
        limits = (
            (resource.RLIMIT_NOFILE, request.get("open_files")),
            (resource.RLIMIT_FSIZE, request.get("file_bytes")),
        )
        self._box = box
        self._limits = [(which, most) for which, most in limits if most is not None]
        self._scoped = request["sandboxed"] and scopes_abstract_sockets(request["argv"][0])

    @property
    def are_any(self) -> bool:
        return self._box is not None or bool(self._limits) or self._scoped

    def enter(self) -> None:
        if self._box is not None:
            self._box.enter()
        for which, most in self._limits:
            hard = resource.getrlimit(which)[1]
            bounded = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(which, (bounded, bounded))
        if self._scoped:
            _leave_abstract_sockets_alone()


def launch(request: dict[str, Any], fds: dict[int, int], box: CommandCgroups | None = None) -> int:
    """Start it in a session of its own with exactly these file descriptors, and return its pid.

    Changes the working directory of the calling process, which must be single-threaded. All its
    descriptors must be close-on-exec (Python's default), and those in `fds` lie above their
    targets.
    """
    env, folder, program = request["env"], request["cwd"], request["program"]
    _enter(folder, program)
    try:
        if request["sandboxed"]:
            # The sandbox itself would report it in its own words, and with an exit code.
            _look_for(program, env)
        return _start_first(request["argv"], env, fds, LaunchLimits(box, request))
    except ValueError as error:
        raise LaunchError(errno.EINVAL, f"cannot start '{program}': {error}") from error
    except OSError as error:
        message = _sentence(program, request["argv"], env, error)
        raise LaunchError(error.errno or 0, message) from error
    finally:
        # A supervisor must not occupy a workspace that has to be removed or unmounted.
        os.chdir("/")


def _enter(folder: str, program: str) -> None:
    try:
        os.chdir(folder)
    except OSError as error:
        missing = error.errno == errno.ENOENT
        problem = "it does not exist" if missing else error.strerror
        message = f"cannot start '{program}' in the folder '{folder}': {problem}"
        raise LaunchError(error.errno or 0, message) from error


def _look_for(program: str, env: dict[str, str]) -> None:
    places = [path for path in _places(program, env) if os.access(path, os.F_OK)]
    if not any(os.access(path, os.X_OK) for path in places):
        number = errno.EACCES if places else errno.ENOENT
        raise OSError(number, os.strerror(number))


def _start_first(
    argv: list[str], env: dict[str, str], fds: dict[int, int], confines: LaunchLimits
) -> int:
    """Start the first program of this name on the command's own PATH that may be started."""
    refusal: OSError = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    for path in _places(argv[0], env):
        try:
            if confines.are_any:
                return _fork_into(confines, path, argv, env, fds)
            return _spawn(path, argv, env, fds)
        except PermissionError as error:
            refusal = error
    raise refusal


def _places(program: str, env: dict[str, str]) -> list[str]:
    if "/" in program:
        return [program]
    folders = env.get("PATH", os.defpath).split(os.pathsep)
    paths = [f"{folder or '.'}/{program}" for folder in folders]
    # Checking first is much cheaper than having the system try each in a new process.
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


def _fork_into(
    confines: LaunchLimits, path: str, argv: list[str], env: dict[str, str], fds: dict[int, int]
) -> int:
    """Like `_spawn`, for a command that must be restricted before it can do anything."""
    reading, writing = os.pipe()
    refusal = fcntl.fcntl(writing, fcntl.F_DUPFD_CLOEXEC, _ABOVE_TARGETS)
    os.close(writing)
    try:
        pid = os.fork()
        if not pid:
            _become(confines, path, argv, env, fds, refusal)
    finally:
        os.close(refusal)
        # Empty: the program runs, or was killed for its limit before it could.
        number = os.read(reading, 16)
        os.close(reading)
    if number:
        os.waitpid(pid, 0)
        raise OSError(int(number), os.strerror(int(number)), path)
    return pid


def _become(
    confines: LaunchLimits,
    path: str,
    argv: list[str],
    env: dict[str, str],
    fds: dict[int, int],
    refusal: int,
) -> NoReturn:
    try:
        confines.enter()
        os.setsid()
        for target, fd in fds.items():
            os.dup2(fd, target)
        for signum in _RESETTABLE:
            signal.signal(signum, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.execve(path, argv, env)  # noqa: S606 - what this package is for
    except OSError as error:
        os.write(refusal, b"%d" % (error.errno or errno.EIO))
    except ValueError:
        os.write(refusal, b"%d" % errno.EINVAL)
    finally:
        # Whatever went wrong, this process must not continue as the supervisor.
        os._exit(127)


def _sentence(program: str, argv: list[str], env: dict[str, str], error: OSError) -> str:
    if error.errno == errno.ENOENT:
        if error.filename is not None and os.access(error.filename, os.F_OK):
            return f"cannot start '{program}': the interpreter in its first line is missing"
        where = (
            "no such file"
            if "/" in program
            else f"not found on PATH ({env.get('PATH', os.defpath)})"
        )
        return f"cannot start '{program}': {where}"
    if error.errno == errno.EACCES:
        return f"cannot start '{program}': it is not executable (permission denied)"
    if error.errno == errno.ENOEXEC:
        return f"cannot start '{program}': it is neither a program nor a script with a #! line"
    if error.errno == errno.E2BIG:
        size = sum(map(len, argv)) + sum(len(name) + len(value) for name, value in env.items())
        return (
            f"cannot start '{program}': its arguments and environment ({size} bytes) exceed"
            " the system's limit; pass large input on stdin or in a file"
        )
    if error.errno in _TRANSIENT:
        return f"cannot start '{program}' now, the machine is out of resources: {error.strerror}"
    return f"cannot start '{program}': {error.strerror}"
