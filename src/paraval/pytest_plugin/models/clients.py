"""The usual clients of models and of HTTP, known by the names of their exceptions.

None of them is imported: which package an exception is of, its classes tell, and so do they of a
user's own subclass. What an exception means is for `outages` to say.
"""

from __future__ import annotations

from dataclasses import dataclass

MODEL_CLIENTS = frozenset(
    {
        "ai21",
        "anthropic",
        "azure",
        "botocore",
        "cerebras",
        "cohere",
        "fireworks",
        "google",
        "groq",
        "grpc",
        "huggingface_hub",
        "litellm",
        "mistralai",
        "ollama",
        "openai",
        "pydantic_ai",
        "replicate",
        "together",
        "voyageai",
    }
)
"""What they ask is a provider: also a key that is refused says nothing of an answer."""
WEB_CLIENTS = frozenset(
    {"aiohttp", "http", "httpcore", "httpcore2", "httpx", "httpx2", "requests", "urllib", "urllib3"}
)
"""What they ask may be the very thing that is tested: only what may pass is an outage there."""

REFUSED = frozenset(
    {
        "RateLimitError",
        "ResourceExhausted",
        "ThrottlingError",
        "ThrottlingException",
        "TooManyRequests",
        "TooManyRequestsError",
    }
)
NO_KEY = frozenset({"DefaultCredentialsError", "NoCredentialsError", "PartialCredentialsError"})
UNCONNECTED_IN_TIME = frozenset(
    {"ConnectTimeout", "ConnectTimeoutError", "ConnectionTimeoutError", "PoolTimeout"}
)
TIMED_OUT = frozenset(
    {
        "APITimeoutError",
        "DeadlineExceeded",
        "ReadTimeout",
        "ReadTimeoutError",
        "ServerTimeoutError",
        "SocketTimeoutError",
        "Timeout",
        "TimeoutError",
        "TimeoutException",
        "WriteTimeout",
    }
)
BROKEN = frozenset(
    {
        "APIConnectionError",
        "BadGateway",
        "BadGatewayError",
        "ChunkedEncodingError",
        "ClientConnectionError",
        "ClientOSError",
        "ClientPayloadError",
        "ConnectError",
        "ConnectionClosedError",
        "ConnectionError",
        "EndpointConnectionError",
        "HTTPClientError",
        "IncompleteRead",
        "InternalServerError",
        "MaxRetryError",
        "NetworkError",
        "NewConnectionError",
        "OverloadedError",
        "ProtocolError",
        "ProxyError",
        "RemoteProtocolError",
        "ServerError",
        "ServiceRequestError",
        "ServiceResponseError",
        "ServiceUnavailable",
        "ServiceUnavailableError",
        "URLError",
    }
)
OURS_ALONE = frozenset({"LocalProtocolError", "UnsupportedProtocol"})
"""Misuse of the client, though it calls that a protocol's or a transport's error."""

REFUSED_CODES = frozenset(
    {
        "LimitExceededException",
        "ProvisionedThroughputExceededException",
        "RESOURCE_EXHAUSTED",
        "RequestLimitExceeded",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    }
)
"""Of AWS, whatever the status, and of gRPC, which has none."""
PASSING_CODES = frozenset(
    {
        "ABORTED",
        "InternalServerException",
        "ModelNotReadyException",
        "ServiceUnavailableException",
        "UNAVAILABLE",
    }
)
LATE_CODES = frozenset({"DEADLINE_EXCEEDED", "ModelTimeoutException", "RequestTimeout"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """Whose an exception is."""

    package: str
    names: frozenset[str]
    """The exception's class, and those that it comes from, as far as they are the client's."""

    @property
    def asks_models(self) -> bool:
        return self.package in MODEL_CLIENTS


def client_of(error: BaseException) -> Client | None:
    """The outermost client: litellm's errors are openai's, too. None: it is nobody's we know."""
    # A class may have anything for its module, None, too.
    named = [
        (str(kind.__module__).partition(".")[0], kind.__name__) for kind in type(error).__mro__
    ]
    known = [(package, name) for package, name in named if is_known(package)]
    if not known:
        return None
    return Client(package=known[0][0], names=frozenset(name for _, name in known))


def is_known(package: str) -> bool:
    return package in MODEL_CLIENTS or package in WEB_CLIENTS
