"""Tables of known process-wide effects, which no test may have while other tests run.

Names are full names, compared with a file's imports; nothing here is imported.
"""

from __future__ import annotations

MARKS = {
    "serial": "marked serial",
    "vcr": "marked vcr: cassettes patch process-wide connections",
    "freeze_time": "marked freeze_time: the clock is process-wide",
    "time_machine": "marked time_machine: the clock is process-wide",
    "disable_socket": "marked disable_socket: sockets are process-wide",
    "enable_socket": "marked enable_socket: sockets are process-wide",
    "allow_hosts": "marked allow_hosts: sockets are process-wide",
    "block_network": "marked block_network: sockets are process-wide",
    "forked": "marked forked: it runs in a forked child process",
    "dependency": "marked dependency: other tests must run first",
    "order": "marked order: it runs at a set position",
    "django_db": "marked django_db: connections are set up for one test at a time",
}

FIXTURES = {
    "_pytest": "capfd capfdbinary pytester testdir",
    "aioresponses": "mock_aioresponse",
    "pyfakefs": "fs fs_class fs_module",
    "pytest_aioresponses": "mock_aioresponse",
    "pytest_django": "settings db transactional_db live_server mailoutbox",
    "pytest_flask": "live_server",
    "pytest_freezegun": "freezer",
    "pytest_freezer": "freezer",
    "pytest_httpserver": "httpserver httpserver_ipv4 httpserver_ipv6",
    "pytest_httpx": "httpx_mock",
    "pytest_mock": "mocker class_mocker module_mocker package_mocker",
    "pytest_mockito": "when when2 expect patch unstub unstub_ spy2",
    "pytest_socket": "socket_disabled socket_enabled",
    "pytest_structlog": "log",
    "pytest_subprocess": "fp fake_process fake_subprocess",
    "pytest_time_machine": "time_machine",
    "pytest_vcr": "vcr_cassette",
    "requests_mock": "requests_mock",
    "respx": "respx_mock",
    "time_machine": "time_machine",
}
"""Fixtures of installed plugins, by package: other packages may use the same name."""

TEST_CASES = {
    "django": "Django test case: connections are set up for one test at a time",
    "twisted": "twisted test case: the reactor is process-wide",
}
"""Base classes, by package."""

UNITTEST_SETUPS = frozenset({"setUpClass", "tearDownClass", "setUpModule", "tearDownModule"})
"""They change the state of a whole class or module."""

_CALLS = {
    # patches and fakes; a package without names stands for everything in it
    "aioresponses": "aioresponses",
    "blockbuster": "BlockBuster blockbuster_ctx",
    "flexmock": "",
    "httpretty": "enable activate httprettified",
    "mock": "patch",
    "mockito": "",
    "moto": "",
    "nest_asyncio": "apply",
    "pook": "",
    "pyfakefs": "",
    "pytest_socket": "disable_socket enable_socket socket_allow_hosts",
    "requests_mock": "Mocker mock",
    "responses": "activate start RequestsMock mock",
    "respx": "mock start MockRouter",
    "testfixtures": "Replacer Replace replace replace_in_module replace_on_class LogCapture "
    "log_capture OutputCapture test_date test_datetime test_time mock_date mock_datetime mock_time",
    "unittest.mock": "patch",
    "vcr": "use_cassette VCR",
    # the clock and random numbers
    "freezegun": "freeze_time",
    "numpy.random": "seed set_state",
    "random": "seed setstate",
    "time": "tzset",
    "time_machine": "travel",
    "torch": "manual_seed",
    # the process
    "builtins": "breakpoint",
    "contextlib": "chdir",
    "faulthandler": "enable disable register dump_traceback_later",
    "gc": "disable enable freeze get_objects set_debug set_threshold",
    "importlib": "reload",
    "locale": "setlocale",
    "os": "chdir fchdir chroot putenv unsetenv umask dup2 nice fork forkpty",
    "pdb": "set_trace",
    "pty": "fork spawn",
    "resource": "setrlimit",
    "runpy": "run_path run_module",
    "socket": "setdefaulttimeout sethostname",
    "sys": "setrecursionlimit setswitchinterval set_int_max_str_digits settrace setprofile",
    "tracemalloc": "start stop take_snapshot",
    # signals, threads, child processes by fork, event loops
    "anyio": "open_signal_receiver",
    "asyncio": "set_event_loop_policy",
    "concurrent.futures": "ProcessPoolExecutor",
    "multiprocessing": "Process Pool Manager",
    "signal": "signal alarm setitimer raise_signal set_wakeup_fd",
    "threading": "main_thread active_count enumerate settrace setprofile settrace_all_threads "
    "setprofile_all_threads",
    "trio": "open_signal_receiver",
    "uvloop": "install",
    # logging, codecs, streams, test runners
    "click.testing": "CliRunner",
    "codecs": "register unregister",
    "doctest": "testmod testfile run_docstring_examples",
    "logging": "basicConfig disable captureWarnings setLoggerClass setLogRecordFactory shutdown",
    "logging.config": "dictConfig fileConfig",
    "pytest": "main",
    "structlog": "configure configure_once reset_defaults",
    "structlog.testing": "capture_logs",
    "typer.testing": "CliRunner",
    "unittest": "main",
}
CALLS = frozenset(
    f"{module}.{name}" if name else module
    for module, names in _CALLS.items()
    for name in names.split() or [""]
)
"""By full name; includes their attributes, such as `unittest.mock.patch.object`."""

PATCHES = ("unittest.mock.patch", "mock.patch")

METHODS = {
    "assertLogs": "uses assertLogs: the logger is process-wide",
    "assertNoLogs": "uses assertNoLogs: the logger is process-wide",
    "addClassCleanup": "uses addClassCleanup: the class is shared",
    "add_signal_handler": "uses add_signal_handler: it needs the main thread",
    "chdir": "changes the working directory",
    "setUpPyfakefs": "uses setUpPyfakefs: the file system is process-wide",
    "subTest": "its subtests are reported while it runs",
    "syspath_prepend": "changes sys.path",
}
"""By name, on any object."""

PATCHING_METHODS = frozenset({"setattr", "delattr", "setitem", "delitem"})
"""Methods of `pytest.MonkeyPatch`, whatever the variable is called."""

CONTAINERS = ("sys.modules", "sys.path", "sys.argv", "sys.meta_path", "sys.path_hooks")

CHANGING_METHODS = frozenset(
    {"update", "pop", "popitem", "setdefault", "clear", "__setitem__", "__delitem__"}
    | {"append", "extend", "insert", "remove", "reverse", "sort"}
)

ENVIRONMENT = frozenset({"os.environ", "os.environb"})
"""Never a reason: each test has its own environment."""

ISOLATED = frozenset(
    {"sys.stdout", "sys.stderr", "sys.stdin", "warnings.filters", "warnings.showwarning"}
)
"""May be set in parallel: `streams` and `item_warnings` isolate these."""
