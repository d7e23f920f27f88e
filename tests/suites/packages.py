"""Whose suites are run, in which versions, and which differences are known, and why."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A difference that stays."""

    test: str
    """A pattern of test ids as in a JUnit file: classname::name; or `warnings`."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A package on PyPI whose source distribution has its tests."""

    name: str
    version: str
    requires: tuple[str, ...]
    """What its tests need besides pytest."""
    arguments: tuple[str, ...] = ()
    known: tuple[Known, ...] = ()

    def why_known(self, test: str) -> str | None:
        return next((one.reason for one in self.known if fnmatchcase(test, one.test)), None)


PYTEST = "pytest==9.2.0"

PACKAGES = (
    Package(
        name="structlog",
        version="26.1.0",
        requires=("pytest-asyncio", "simplejson", "time-machine", "twisted", "rich", "greenlet"),
    ),
    Package(name="attrs", version="26.1.0", requires=("cloudpickle", "hypothesis", "pympler")),
    Package(name="pluggy", version="1.7.0", requires=("pytest-benchmark",)),
    Package(
        name="stamina",
        version="26.1.0",
        requires=("anyio", "dirty-equals", "prometheus-client", "structlog", "trio"),
    ),
    Package(
        name="httpx",
        version="0.28.1",
        requires=(
            "httpx[brotli,cli,http2,socks,zstd]==0.28.1",
            "chardet==5.2.0",
            "trio",
            "trustme",
            "uvicorn",
        ),
        known=(
            Known(
                test="tests.test_timeouts::test_write_timeout[[]trio]",
                reason="a write must not be done within a microsecond: on some machines, at some "
                "moments, it is; in a parallel run it runs alone, too",
            ),
        ),
    ),
    Package(
        name="anyio",
        version="4.16.0",
        requires=(
            "blockbuster",
            "coverage",
            "hypothesis",
            "psutil",
            "pytest-mock",
            "pytest-timeout",
            "trio",
            "trustme",
            "truststore",
            "uvloop",
        ),
        # Those that end within minutes: the rest of its suite takes long in plain pytest, too.
        arguments=(
            "tests/streams",
            "tests/test_fileio.py",
            "tests/test_taskgroups.py",
            "tests/test_synchronization.py",
            "tests/test_from_thread.py",
            "tests/test_to_thread.py",
        ),
    ),
    Package(name="click", version="8.5.1", requires=()),
    Package(name="jinja2", version="3.1.6", requires=("trio",)),
    Package(name="tenacity", version="9.2.1", requires=("tornado", "trio", "typeguard")),
    Package(
        name="starlette",
        version="1.10.0",
        requires=("starlette[full]==1.10.0", "httpx2", "blockbuster", "trio", "opentelemetry-sdk"),
    ),
)
