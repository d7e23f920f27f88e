"""What is known to change the whole process: fixtures, marks and functions, one line each.

How a test's use of them is found is for `scan` to say. Nothing here is imported: what no test has
loaded, no test uses.
"""

from __future__ import annotations

MARKS = {
    "serial": "marked serial",
    "vcr": "marked vcr: cassettes patch the process's connections",
    "freeze_time": "marked freeze_time: the clock is the process's",
    "time_machine": "marked time_machine: the clock is the process's",
    "disable_socket": "marked disable_socket: sockets are the process's",
    "enable_socket": "marked enable_socket: sockets are the process's",
    "allow_hosts": "marked allow_hosts: sockets are the process's",
    "block_network": "marked block_network: sockets are the process's",
    "django_db": "marked django_db: connections are set up for one test at a time",
}

FIXTURES = {
    # of pytest itself
    "capfd": "_pytest",
    "capfdbinary": "_pytest",
    "pytester": "_pytest",
    "testdir": "_pytest",
    # of pytest-mock; `session_mocker` is seen by everybody, and patches once
    "mocker": "pytest_mock",
    "class_mocker": "pytest_mock",
    "module_mocker": "pytest_mock",
    "package_mocker": "pytest_mock",
    # the clock
    "freezer": "pytest_freezer pytest_freezegun",
    "time_machine": "pytest_time_machine time_machine",
    # the file system
    "fs": "pyfakefs",
    "fs_class": "pyfakefs",
    "fs_module": "pyfakefs",
    # the network
    "socket_disabled": "pytest_socket",
    "socket_enabled": "pytest_socket",
    "httpx_mock": "pytest_httpx",
    "requests_mock": "requests_mock",
    "respx_mock": "respx",
    "mock_aioresponse": "pytest_aioresponses aioresponses",
    "vcr_cassette": "pytest_vcr",
    # loops and databases of one test at a time
    "settings": "pytest_django",
    "db": "pytest_django",
    "transactional_db": "pytest_django",
    "live_server": "pytest_django pytest_flask",
}
"""By name: the packages that bring it, since others may call something else the same."""

SEEN_BY_EVERYBODY = frozenset({"session"})
"""Scopes whose fixtures may change the process once, for all tests."""

CALLABLES = (
    # patches
    "mock.patch",
    "pytest.MonkeyPatch",
    "importlib.reload",
    "nest_asyncio.apply",
    "blockbuster.BlockBuster",
    "blockbuster.blockbuster_ctx",
    "codecs.register",
    "codecs.unregister",
    "uvloop.install",
    "asyncio.set_event_loop_policy",
    # the folder and the environment
    "os.chdir",
    "os.fchdir",
    "os.chroot",
    "contextlib.chdir",
    "os.umask",
    "os.dup2",
    "os.nice",
    "time.tzset",
    "locale.setlocale",
    "resource.setrlimit",
    # logging
    "logging.basicConfig",
    "logging.disable",
    "logging.captureWarnings",
    "logging.setLoggerClass",
    "logging.setLogRecordFactory",
    "logging.shutdown",
    "logging.config.dictConfig",
    "logging.config.fileConfig",
    "structlog.configure",
    "structlog.configure_once",
    "structlog.reset_defaults",
    "structlog.testing.capture_logs",
    # streams, and more
    "click.testing.CliRunner",
    "typer.testing.CliRunner",
    "doctest.testmod",
    "doctest.testfile",
    "doctest.run_docstring_examples",
    # the main thread, and the number of threads
    "signal.signal",
    "signal.alarm",
    "signal.setitimer",
    "signal.raise_signal",
    "signal.set_wakeup_fd",
    "anyio.open_signal_receiver",
    "trio.open_signal_receiver",
    "threading.main_thread",
    "threading.active_count",
    "threading.enumerate",
    "builtins.breakpoint",
    "pdb.set_trace",
    # forks: a child has this thread only, and the locks of all
    "os.fork",
    "os.forkpty",
    "pty.fork",
    "pty.spawn",
    "multiprocessing.Process",
    "multiprocessing.Pool",
    "multiprocessing.Manager",
    "concurrent.futures.ProcessPoolExecutor",
    # the interpreter
    "sys.setrecursionlimit",
    "sys.setswitchinterval",
    "sys.set_int_max_str_digits",
    "sys.settrace",
    "sys.setprofile",
    "threading.settrace",
    "threading.setprofile",
    "threading.settrace_all_threads",
    "threading.setprofile_all_threads",
    "gc.disable",
    "gc.enable",
    "gc.freeze",
    "gc.get_objects",
    "gc.set_debug",
    "gc.set_threshold",
    "tracemalloc.start",
    "tracemalloc.stop",
    "tracemalloc.take_snapshot",
    "faulthandler.enable",
    "faulthandler.disable",
    "faulthandler.register",
    "faulthandler.dump_traceback_later",
    "runpy.run_path",
    "runpy.run_module",
    "pytest.main",
    "unittest.main",
    # the clock
    "freezegun.freeze_time",
    "time_machine.travel",
    # the network
    "socket.setdefaulttimeout",
    "socket.sethostname",
    "responses.activate",
    "responses.start",
    "responses.RequestsMock",
    "aioresponses.aioresponses",
    "requests_mock.Mocker",
    "requests_mock.mock",
    "respx.mock",
    "respx.start",
    "vcr.use_cassette",
    "vcr.VCR",
    "httpretty.enable",
    "httpretty.activate",
    "pytest_socket.disable_socket",
    "pytest_socket.enable_socket",
    "pytest_socket.socket_allow_hosts",
)
"""By full name. Whatever is found under it counts, under whatever other name it is used."""

CONTAINERS = ("sys.modules",)
"""What must be read only; by full name."""

CHANGING_METHODS = frozenset(
    {"update", "pop", "popitem", "setdefault", "clear", "__setitem__", "__delitem__"}
    | {"append", "appendleft", "extend", "insert", "remove", "reverse", "sort", "add", "discard"}
)
"""Of dicts, lists and sets."""

EACH_TURNS_OWN = frozenset(
    {"sys.stdout", "sys.stderr", "sys.stdin", "warnings.filters", "warnings.showwarning"}
)
"""What may be set beside others: `streams` and `warnings_by_turn` keep it apart. So `pytest.warns`,
`recwarn`, `warnings.catch_warnings` and `contextlib.redirect_stdout` are not in these tables."""

METHODS = {
    "assertLogs": "the logger is the process's",
    "assertNoLogs": "the logger is the process's",
    "addClassCleanup": "it is the class's",
    "add_signal_handler": "only the main thread may",
}
"""By name, whatever they are methods of: nothing else is called so."""

DECORATORS = {
    "freezegun": "decorated by freezegun: the clock is the process's",
    "time_machine": "decorated by time_machine: the clock is the process's",
    "responses": "decorated by responses: connections are the process's",
    "aioresponses": "decorated by aioresponses: connections are the process's",
    "requests_mock": "decorated by requests_mock: connections are the process's",
    "respx": "decorated by respx: connections are the process's",
    "vcr": "decorated by vcr: connections are the process's",
    "httpretty": "decorated by httpretty: connections are the process's",
    "pyfakefs": "decorated by pyfakefs: files are the process's",
}
"""By the package that the function around a test comes from."""
