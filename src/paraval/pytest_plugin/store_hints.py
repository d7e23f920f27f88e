"""What the store complains of, told to whoever runs tests: their flags are other ones, and nothing
goes on with a session of tests."""

from __future__ import annotations

from paraval.errors import ParavalError
from paraval.store.connection import CLOSE_AND_RESUME, RESUMABLE
from paraval.store.folder import OPTION

_FOR_TESTS = {
    OPTION: "--paraval-store-at=FOLDER",
    RESUMABLE: "what was recorded is safe",
    CLOSE_AND_RESUME: "close what has it open, then run the tests again",
}


def for_tests(error: ParavalError) -> str:
    text = str(error)
    for of_suites, of_tests in _FOR_TESTS.items():
        text = text.replace(of_suites, of_tests)
    return text
