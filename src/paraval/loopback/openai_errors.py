"""OpenAI's errors, the same in both of its protocols."""

from __future__ import annotations

from typing import Any

from paraval.loopback.exchange import Refusal, RefusalKind

_TYPE_AND_CODE: dict[RefusalKind, tuple[str, str | None]] = {
    RefusalKind.MALFORMED: ("invalid_request_error", None),
    RefusalKind.BAD_KEY: ("invalid_request_error", "invalid_api_key"),
    RefusalKind.NO_MODEL: ("invalid_request_error", "model_not_found"),
    RefusalKind.NO_PATH: ("invalid_request_error", "unknown_url"),
    RefusalKind.TOO_LARGE: ("invalid_request_error", None),
    RefusalKind.RATE: ("requests", "rate_limit_exceeded"),
    RefusalKind.QUOTA: ("insufficient_quota", "insufficient_quota"),
}


def openai_refusal(refusal: Refusal) -> tuple[int, dict[str, Any]]:
    kind, code = _TYPE_AND_CODE.get(refusal.kind) or _by_status(refusal.status)
    error = {"message": refusal.message, "type": kind, "param": None, "code": code}
    return refusal.status, {"error": error}


def _by_status(status: int) -> tuple[str, str | None]:
    match status:
        case 401:
            return _TYPE_AND_CODE[RefusalKind.BAD_KEY]
        case 429:
            return _TYPE_AND_CODE[RefusalKind.RATE]
        case _ if status >= 500:
            return "server_error", None
    return "invalid_request_error", None
