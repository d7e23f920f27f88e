"""Tables of common model and HTTP clients, identified by the names of their exceptions.

None of them is imported. `outages` decides what an exception means.
"""

from __future__ import annotations

from paraval.records import Outcome

_MODELS = (
    "ai21 anthropic azure botocore cerebras cohere fireworks google groq grpc huggingface_hub "
)
_MODELS += "litellm mistralai ollama openai pydantic_ai replicate together voyageai"
MODEL_CLIENTS = frozenset(_MODELS.split())
"""They call a provider, so even a refused key says nothing about an answer."""

_WEB = "aiohttp http httpcore httpcore2 httpx httpx2 requests urllib urllib3"
WEB_CLIENTS = frozenset(_WEB.split())
"""They may call the very thing under test, so only temporary failures count as outages."""

_NAMES = {
    Outcome.RATE_LIMITED: "RateLimitError ResourceExhausted ThrottlingError ThrottlingException "
    "TooManyRequests TooManyRequestsError "
    "LimitExceededException ProvisionedThroughputExceededException RESOURCE_EXHAUSTED "
    "RequestLimitExceeded SlowDown Throttling TooManyRequestsException",
    Outcome.TIMEOUT: "APITimeoutError DeadlineExceeded ReadTimeout ReadTimeoutError "
    "ServerTimeoutError SocketTimeoutError Timeout TimeoutError TimeoutException WriteTimeout "
    "DEADLINE_EXCEEDED ModelTimeoutException RequestTimeout",
    Outcome.INFRA_ERROR: "ConnectTimeout ConnectTimeoutError ConnectionTimeoutError PoolTimeout "
    "APIConnectionError BadGateway BadGatewayError ChunkedEncodingError ClientConnectionError "
    "ClientOSError ClientPayloadError ConnectError ConnectionClosedError ConnectionError "
    "EndpointConnectionError HTTPClientError IncompleteRead InternalServerError MaxRetryError "
    "NetworkError NewConnectionError OverloadedError ProtocolError ProxyError RemoteProtocolError "
    "ServerError ServiceRequestError ServiceResponseError ServiceUnavailable "
    "ServiceUnavailableError URLError "
    "ABORTED InternalServerException ModelNotReadyException ServiceUnavailableException "
    "UNAVAILABLE",
    Outcome.CRASHED: "DefaultCredentialsError NoCredentialsError PartialCredentialsError",
    # misuse of the client, though it calls that a protocol's or a transport's error
    Outcome.FAILED: "LocalProtocolError UnsupportedProtocol",
}
KINDS = {name: kind for kind, names in _NAMES.items() for name in names.split()}
"""By class name, or by the code that AWS and gRPC return; `CRASHED`: no key."""
