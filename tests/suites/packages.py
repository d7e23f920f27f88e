"""Whose suites are run, in which versions, and which differences are known, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

PYTESTS = ("8.4.2", "9.0.3", "9.1.1", "9.2.0")
"""The releases of pytest that suites can run on, oldest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A difference that stays."""

    test: str
    """A pattern of test ids as in a JUnit file: classname::name."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A package on PyPI whose source distribution has its tests."""

    name: str
    version: str
    requires: tuple[str, ...] = ()
    """What its tests need besides pytest."""
    arguments: tuple[str, ...] = ()
    pytest: str = PYTESTS[-1]
    """The newest release of pytest that its tests run on."""
    every_pytest: bool = False
    """Is among the few that `--all-pytests` runs."""
    marks: Mapping[str, str] = field(default_factory=dict)
    """What its tests share on purpose: patterns of node ids, and the parallel group of these tests,
    or `serial`."""
    shared: tuple[str, ...] = ()
    """Session fixtures for the ini key `parallel_shared`."""
    known: tuple[Known, ...] = ()

    def why_known(self, test: str) -> str | None:
        return next((one.reason for one in self.known if fnmatchcase(test, one.test)), None)


# Some have `-n auto` in addopts, and --parallel refuses to be combined with xdist. Of SDKs with
# many tests, some files run: all take minutes in plain pytest, and api_resources needs a server.
_NO_XDIST = ("-n", "0")

PACKAGES = (
    Package(
        name="aiofiles",
        version="25.1.0",
        requires=("pytest-asyncio",),
        every_pytest=True,
        # Its tests rename and remove the same files.
        marks={"tests/test_os.py::*": "files"},
    ),
    Package(
        name="anthropic",
        version="2.9.0",
        requires=(
            "anthropic[aiohttp,aws,mcp,vertex,webhooks]==2.9.0",
            "dirty-equals",
            "griffe",
            "http-snapshot[httpx]==0.1.9",
            "httpx2",
            "hypothesis",
            "inline-snapshot",
            "opentelemetry-sdk",
            "pytest-asyncio",
            "pytest-xdist",
            "respx",
            "rich",
            "time-machine",
        ),
        arguments=(
            *_NO_XDIST,
            "tests/test_client.py",
            "tests/test_exceptions.py",
            "tests/test_middleware.py",
            "tests/test_response.py",
            "tests/test_streaming.py",
            "tests/test_tracing.py",
            "tests/lib/environments",
            "tests/lib/streaming",
            "tests/lib/test_aws.py",
            "tests/lib/test_bedrock.py",
            "tests/lib/test_credentials.py",
            "tests/lib/test_vertex.py",
            "tests/lib/tools/test_runners.py",
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
    Package(
        name="arrow",
        version="1.4.0",
        requires=("dateparser", "pytest-cov", "pytest-mock", "pytz==2025.2", "simplejson"),
        arguments=("--no-cov",),
    ),
    Package(
        name="asgiref",
        version="3.13.0",
        requires=("packaging", "pytest-asyncio"),
        every_pytest=True,
    ),
    Package(name="attrs", version="26.1.0", requires=("cloudpickle", "hypothesis", "pympler")),
    Package(name="boltons", version="26.2.0"),
    Package(name="cachetools", version="8.0.0"),
    Package(
        name="claude-agent-sdk",
        version="0.2.183",
        requires=("anyio[trio]", "fakeredis", "moto[s3]", "opentelemetry-sdk", "redis"),
    ),
    Package(name="click", version="8.5.1"),
    Package(
        name="djangorestframework",
        version="3.18.3",
        requires=(
            "dj-database-url",
            "django>=5.2,<6",
            "django-filter",
            "django-guardian",
            "importlib-metadata<10",
            "inflection==0.5.1",
            "markdown",
            "pygments",
            "pytest-cov",
            "pytest-django",
            "pyyaml",
            "requests",
            "uritemplate",
        ),
    ),
    Package(
        name="flask",
        version="3.1.3",
        requires=("asgiref", "greenlet", "python-dotenv"),
        # It imports `notset` from `_pytest.monkeypatch`, which newer releases do not have.
        pytest="9.0.3",
        every_pytest=True,
    ),
    Package(
        name="freezegun",
        version="1.5.5",
        requires=("pytest-cov", "python-dateutil"),
        # A sleep in it must end within 0.3 s.
        marks={"tests/test_asyncio.py::test_asyncio_sleeping_*": "serial"},
    ),
    Package(
        name="google-genai",
        version="3.3.0",
        requires=(
            "google-genai[aiohttp]==3.3.0",
            "httpx",
            "mcp",
            "pandas",
            "pillow",
            "pytest-asyncio",
            "pytest-cov",
            "sentencepiece",
        ),
        # Without credentials and recorded replies, most of the others cannot run.
        arguments=tuple(
            f"google/genai/tests/{folder}"
            for folder in ("chats", "client", "common", "errors", "transformers", "types")
        ),
    ),
    Package(
        name="groq",
        version="1.7.0",
        requires=(
            "groq[aiohttp]==1.7.0",
            "dirty-equals",
            "pytest-asyncio",
            "pytest-xdist",
            "respx",
            "rich",
            "time-machine",
        ),
        # api_resources needs a mock server.
        arguments=(*_NO_XDIST, "--ignore=tests/api_resources"),
        every_pytest=True,
    ),
    Package(
        name="httpcore",
        version="1.0.9",
        requires=(
            "httpcore[asyncio,http2,socks,trio]==1.0.9",
            "pytest-httpbin",
            "pytest-trio",
            "trustme",
        ),
        known=(
            Known(
                test="tests.test_cancellations::test_h2_timeout_*",
                reason="marked xfail, since it depends on how fast the machine is at the moment",
            ),
        ),
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
                "moments, it is",
            ),
        ),
    ),
    Package(
        name="instructor",
        version="1.17.0",
        requires=(
            "anthropic==0.93.0",
            "google-genai",
            "jsonref",
            "pytest-asyncio",
            "pytest-examples",
            "python-dotenv",
            "redis",
            "xmltodict",
        ),
        # The rest asks real models, or runs the examples in the docs.
        arguments=(
            "tests/cache",
            "tests/core",
            "tests/coverage",
            "tests/dsl",
            "tests/multimodal",
            "tests/processing",
            "tests/providers",
        ),
    ),
    Package(name="itsdangerous", version="2.2.0", requires=("freezegun",)),
    Package(
        name="janus", version="2.0.0", requires=("pytest-asyncio", "pytest-benchmark", "pytest-cov")
    ),
    Package(name="jinja2", version="3.1.6", requires=("trio",)),
    Package(
        name="langchain-core",
        version="1.7.2",
        requires=(
            "blockbuster",
            "freezegun",
            "grandalf",
            "langchain-tests",
            "numpy",
            "pytest-asyncio",
            "pytest-benchmark",
            "pytest-codspeed",
            "pytest-mock",
            "pytest-socket",
            "pytest-xdist",
            "responses",
            "syrupy",
        ),
        arguments=("tests/unit_tests",),
    ),
    Package(
        name="langsmith",
        version="0.14.17",
        requires=(
            "langsmith[otel,vcr,sandbox-auth]==0.14.17",
            "anthropic",
            "cachetools",
            "dataclasses-json",
            "dirty-equals",
            "fastapi",
            "freezegun",
            "google-genai",
            "langchain-core",
            "multipart",
            "openai",
            "openai-agents",
            "psutil",
            "pytest-asyncio",
            "pytest-dotenv",
            "pytest-httpx",
            "pytest-rerunfailures",
            "pytest-socket",
            "pytest-subtests",
            "pytest-timeout",
            "pytest-xdist",
            "respx",
            "rich",
            "time-machine",
            "uvicorn",
            "wrapt",
        ),
        # Of what is left out, two files cannot be imported, and hundreds of tests in sandbox fail
        # in plain pytest, too, slowly.
        arguments=(
            *_NO_XDIST,
            "tests/unit_tests",
            "--ignore=tests/unit_tests/sandbox",
            "--ignore=tests/unit_tests/test_background_thread.py",
            "--ignore=tests/unit_tests/wrappers/test_strands_agents.py",
        ),
    ),
    Package(
        name="loguru",
        version="0.7.2",  # The newest source distribution that has tests.
        requires=("colorama", "freezegun==1.5.0"),
        # It needs an old release of mypy.
        arguments=("--ignore=tests/test_type_hinting.py",),
        # The file's first test sets back what tests of other files set in multiprocessing.
        marks={"tests/test_add_option_context.py::*": "start method"},
    ),
    Package(
        name="magentic",
        version="0.41.1",
        requires=(
            "anthropic",
            "inline-snapshot",
            "litellm",
            "logfire-api",
            "pytest-asyncio",
            "pytest-clarity",
            "pytest-cov",
            "pytest-mock",
            "pytest-recording",
            "python-dotenv",
            "vcrpy",
        ),
        arguments=("--no-cov",),
    ),
    Package(
        name="markdown-it-py",
        version="4.3.0",
        requires=("linkify-it-py", "pytest-regressions", "pytest-timeout", "requests"),
        arguments=("tests",),
    ),
    Package(name="marshmallow", version="4.4.0", requires=("simplejson",)),
    Package(
        name="mcp",
        version="2.3.0",
        requires=(
            "mcp[cli,rich]==2.3.0",
            "blockbuster",
            "dirty-equals",
            "inline-snapshot",
            "logfire",
            "opentelemetry-sdk",
            "pillow",
            "pydantic-settings",
            "pytest-examples",
            "pytest-pretty",
            "trio",
        ),
        # The rest needs packages of its repository, or takes minutes in plain pytest.
        arguments=(
            "tests/cli",
            "tests/client",
            "tests/issues",
            "tests/server",
            "tests/shared",
            "tests/types",
        ),
    ),
    Package(name="more-itertools", version="11.2.1", every_pytest=True),
    Package(
        name="ollama",
        version="0.6.3",
        requires=("pillow", "pytest-anyio", "pytest-httpserver"),
        arguments=("tests",),
        every_pytest=True,
    ),
    Package(
        name="openai",
        version="3.51.0",
        requires=(
            "openai[aiohttp,realtime,bedrock]==3.51.0",
            "azure-identity",
            "griffe",
            "inline-snapshot",
            "numpy",
            "pytest-asyncio",
            "pytest-xdist",
            "rich",
            "trio",
        ),
        arguments=(
            *_NO_XDIST,
            "tests/test_client.py",
            "tests/test_debug_logging.py",
            "tests/test_environment_credentials.py",
            "tests/test_httpx2.py",
            "tests/test_legacy_response.py",
            "tests/test_models.py",
            "tests/test_module_client.py",
            "tests/test_response.py",
            "tests/test_streaming.py",
            "tests/test_websocket_initial_backlog.py",
            "tests/lib/streaming",
            "tests/lib/test_azure.py",
            "tests/lib/test_azure_auth.py",
            "tests/lib/test_bedrock.py",
            "tests/lib/test_webhooks.py",
        ),
    ),
    Package(
        name="openai-agents",
        version="0.24.0",
        requires=(
            "openai-agents[voice,realtime,sqlalchemy,encrypt,docker]==0.24.0",
            "aiosqlite",
            "fakeredis",
            "fastapi",
            "graphviz",
            "httpx",
            "inline-snapshot",
            "pytest-asyncio",
            "pytest-mock",
            "pytest-xdist",
            "rich",
        ),
        arguments=(
            "tests/voice",
            "tests/models/test_openai_responses.py",
            "tests/models/test_model_retry.py",
            "tests/test_agent_as_tool.py",
            "tests/test_agent_runner.py",
            "tests/test_agent_runner_streamed.py",
            "tests/test_config.py",
            "tests/test_function_tool.py",
            "tests/test_guardrails.py",
            "tests/test_run_state.py",
            "tests/test_run_step_execution.py",
            "tests/test_trace_processor.py",
        ),
    ),
    Package(
        name="packaging",
        version="26.3",
        requires=("hypothesis", "pip", "pretend", "tomli-w"),
        # That file has 51,000 tests, which take longer than all others.
        arguments=("--ignore=tests/test_version.py",),
    ),
    Package(name="pluggy", version="1.7.0", requires=("pytest-benchmark",), every_pytest=True),
    Package(
        name="pydantic-settings",
        version="2.16.3",
        requires=(
            "pydantic-settings[yaml,aws-secrets-manager,aws-systems-manager]==2.16.3",
            "chardet<6",
            "moto[secretsmanager,ssm]",
            "pytest-examples",
            "pytest-mock",
        ),
        # The examples in its docs end plain pytest with an internal error.
        arguments=("--ignore=tests/test_docs.py",),
    ),
    Package(
        name="pytest-asyncio",
        version="1.5.0",
        requires=("coverage", "hypothesis"),
        every_pytest=True,
    ),
    Package(name="pytest-httpx", version="0.36.2", requires=("pytest-asyncio", "pytest-cov")),
    Package(
        name="python-dateutil",
        version="4.0.0",
        requires=("attrs", "freezegun", "hypothesis", "pytest-cov"),
    ),
    Package(
        name="python-dotenv",
        version="1.2.4",
        requires=("python-dotenv[cli]==1.2.4",),
        every_pytest=True,
    ),
    Package(
        name="responses",
        version="0.26.3",
        requires=("pytest-asyncio", "pytest-httpserver", "tomli-w"),
    ),
    Package(
        name="smolagents",
        version="1.26.0",
        requires=(
            "smolagents[litellm,mcp,openai,toolkit]==1.26.0",
            "ipython",
            "pandas",
            "pytest-datadir",
            "pytest-timeout",
            "python-dotenv",
            "rank-bm25",
        ),
        # Its own `-s` would leave no output to compare.
        arguments=("--capture=fd",),
    ),
    Package(
        name="sqlmodel",
        version="0.0.50",
        requires=(
            "SQLAlchemy[asyncio]",
            "aiosqlite",
            "alembic",
            "black",
            "coverage",
            "dirty-equals",
            "fastapi",
            "httpx",
            "jinja2",
            "pymysql[rsa]",
            "pyyaml",
            "ruff",
            "ty",
            "typer",
        ),
        # Those of the docs depend on running before all others, which clear the models' registry.
        arguments=("tests",),
        # They write to one testing.db.
        marks={"tests/test_tutorial/test_fastapi/test_app_testing/*": "testing.db"},
    ),
    Package(name="sqlparse", version="0.6.1"),
    Package(
        name="stamina",
        version="26.1.0",
        requires=("anyio", "dirty-equals", "prometheus-client", "structlog", "trio"),
    ),
    Package(
        name="starlette",
        version="1.10.0",
        requires=("starlette[full]==1.10.0", "httpx2", "blockbuster", "trio", "opentelemetry-sdk"),
    ),
    Package(
        name="structlog",
        version="26.1.0",
        requires=("pytest-asyncio", "simplejson", "time-machine", "twisted", "rich", "greenlet"),
    ),
    Package(name="tenacity", version="9.2.1", requires=("tornado", "trio", "typeguard")),
    Package(name="toolz", version="1.2.0"),
    Package(
        name="uvicorn",
        version="0.54.0",
        requires=(
            "uvicorn[standard]==0.54.0",
            "a2wsgi==1.10.10",
            "cryptography",
            "httpx2",
            "pytest-codspeed",
            "pytest-mock",
            "pytest-xdist[psutil]",
            "trustme",
            "wsproto",
        ),
        arguments=_NO_XDIST,
    ),
    Package(
        name="vcrpy",
        version="9.4.2",
        requires=(
            "aiohttp",
            "boto3",
            "cryptography",
            "httpbin",
            "httplib2",
            "httpx",
            "httpx2",
            "pysocks",
            "pytest-aiohttp",
            "pytest-asyncio",
            "pytest-cov",
            "pytest-httpbin",
            "requests",
            "tornado",
        ),
    ),
    Package(
        name="werkzeug",
        version="3.1.9",
        requires=("cffi", "cryptography", "ephemeral-port-reserve", "pytest-timeout", "watchdog"),
        # The tests of the reloader hang in plain pytest, too.
        arguments=("-k", "not reloader"),
    ),
    Package(name="wrapt", version="2.5.2", requires=("setuptools",)),
)
