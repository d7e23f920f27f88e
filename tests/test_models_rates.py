"""Headers of rate limits: what they say, in every form that they come in, and garbage too."""

from __future__ import annotations

import math
from email.utils import formatdate

import pytest
from hypothesis import given, settings, strategies as st

from paraval.models.rate_limits import LONGEST_WAIT_S, duration, fitting, limits_in, retry_after
from paraval.records import RateTold

NOW = 1_800_000_000.0
"""2027-01-15 08:00:00 UTC."""


def date(offset: float) -> str:
    return formatdate(NOW + offset, usegmt=True)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("7", 7),
        ("1.5", 1.5),
        (" 7 ", 7),
        ("6m0s", 360),
        ("1m30s", 90),
        ("500ms", 0.5),
        ("1h2m3s", 3723),
        ("2m59.56s", 179.56),
        ("1d", 86_400),
        (date(30), 30),
        ("Fri, 15 Jan 2027 08:00:30 -0000", 30),
        ("2027-01-15T08:00:30Z", 30),
        ("2027-01-15T09:00:30.5+01:00", 30.5),
        ("1e9", LONGEST_WAIT_S),
        ("99999h", LONGEST_WAIT_S),
        (date(10**9), LONGEST_WAIT_S),
    ],
)
def test_a_wait_is_read_in_every_form_and_bounded(text: str, seconds: float) -> None:
    assert retry_after({"retry-after": text}, NOW) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    [
        *("0", "-1", "", "abc", "nan", "inf", "1e999", "0s", "7 apples", "1_000", "\u0667", "--"),
        *("s", "m5", "Fri, 99 Jan 2027 08:00:00 GMT", "2027-13-01T00:00:00Z", "x" * 100_000),
        *(date(-30), "2020-01-01T00:00:00Z", "Mon, 01 Jan 99999 00:00:00 GMT"),
    ],
)
def test_garbage_and_what_is_past_tell_nothing(text: str) -> None:
    assert retry_after({"retry-after": text}, NOW) is None


def test_milliseconds_go_before_seconds() -> None:
    assert retry_after({"retry-after-ms": "250", "retry-after": "1"}, NOW) == 0.25
    assert retry_after({"retry-after-ms": "soon", "retry-after": "1"}, NOW) == 1
    assert retry_after({}, NOW) is None


def test_a_date_is_one_of_the_servers_clock() -> None:
    """Ours may be set back: a wait of 3 s would be one of a year."""
    headers = {"retry-after": date(3), "date": date(0)}
    for now in (NOW, NOW - 3e7, NOW + 3e7):
        assert retry_after(headers, now) == 3
    reset = anthropic("requests", "50", "49", "2027-01-15T08:00:02Z")
    rate = limits_in({**reset, "date": date(0)}, NOW - 3e7)
    assert rate is not None
    assert rate.requests_full_in_s == 2


@pytest.mark.parametrize("there", ["", "now", "0", "x" * 1000])
def test_a_server_that_does_not_tell_its_time_has_ours(there: str) -> None:
    assert retry_after({"retry-after": date(3), "date": there}, NOW) == 3


@settings(deadline=None)
@given(st.text(max_size=80))
def test_no_text_makes_a_wait_that_is_not_bounded(text: str) -> None:
    wait = retry_after({"retry-after": text}, NOW)
    assert wait is None or 0 < wait <= LONGEST_WAIT_S
    anyhow = duration(text, NOW)
    assert anyhow is None or (math.isfinite(anyhow) and anyhow >= 0)


def openai(what: str, limit: str, left: str, reset: str) -> dict[str, str]:
    return {
        f"x-ratelimit-limit-{what}": limit,
        f"x-ratelimit-remaining-{what}": left,
        f"x-ratelimit-reset-{what}": reset,
    }


def anthropic(what: str, limit: str, left: str, reset: str) -> dict[str, str]:
    return {
        f"anthropic-ratelimit-{what}-limit": limit,
        f"anthropic-ratelimit-{what}-remaining": left,
        f"anthropic-ratelimit-{what}-reset": reset,
    }


def test_openais_headers() -> None:
    headers = openai("requests", "60", "59", "1s")
    headers |= openai("tokens", "150000", "149984", "500ms")
    assert limits_in(headers, NOW) == RateTold(
        requests_per_minute=60,
        requests_left=59,
        requests_full_in_s=1,
        tokens_per_minute=150_000,
        tokens_left=149_984,
        tokens_full_in_s=0.5,
    )


def test_anthropics_headers() -> None:
    headers = anthropic("requests", "50", "49", "2027-01-15T08:00:02Z")
    headers |= anthropic("input-tokens", "40000", "39000", "2027-01-15T08:00:02Z")
    headers |= anthropic("output-tokens", "8000", "7990", "2027-01-15T08:00:01Z")
    assert limits_in(headers, NOW) == RateTold(
        requests_per_minute=50,
        requests_left=49,
        requests_full_in_s=2,
        tokens_per_minute=40_000,
        tokens_left=39_000,
        tokens_full_in_s=2,
    )


def test_of_input_and_output_tokens_the_tighter_counts() -> None:
    headers = anthropic("input-tokens", "40000", "39000", "2027-01-15T08:00:02Z")
    headers |= anthropic("output-tokens", "8000", "800", "2027-01-15T08:00:54Z")
    rate = limits_in(headers, NOW)
    assert rate is not None
    assert (rate.tokens_per_minute, rate.tokens_left) == (8000, 800)
    assert rate.requests_per_minute is None


def test_a_limit_that_refills_slowly_counts_by_the_day() -> None:
    """30 of 14,400 are used, and come back in 3 minutes: so many a day, and not a minute."""
    rate = limits_in(openai("requests", "14400", "14370", "2m59.56s"), NOW)
    assert rate is not None
    assert rate.requests_per_minute == pytest.approx(10, rel=0.01)
    assert rate.requests_left == 14_370


def test_a_window_that_ends_at_midnight_has_no_rate() -> None:
    rate = limits_in(openai("requests", "14400", "14399", "9h"), NOW)
    assert rate is not None
    assert rate.requests_per_minute is None
    assert rate.requests_left == 14_399


def test_a_window_of_a_minute_that_has_just_begun_is_not_taken_for_a_slow_one() -> None:
    rate = limits_in(openai("requests", "3000", "2999", "60s"), NOW)
    assert rate is not None
    assert rate.requests_per_minute == 3000


@pytest.mark.parametrize(
    "headers",
    [
        openai("requests", "1000", "0", "86400s"),
        openai("requests", "50", "10", "20h"),
        openai("requests", "20", "0", "1h"),
    ],
)
def test_a_rate_below_one_a_minute_is_none_that_anyone_would_wait_by(
    headers: dict[str, str],
) -> None:
    rate = limits_in(headers, NOW)
    assert rate is not None
    assert rate.requests_per_minute is None


def test_a_limit_of_tokens_that_a_request_went_over_is_none() -> None:
    headers = openai("tokens", "1000", "0", "1s") | openai("requests", "60", "59", "1s")
    rate = limits_in(headers, NOW)
    assert fitting(rate, 1000) == rate
    smaller = fitting(rate, 1001)
    assert smaller is not None
    assert (smaller.tokens_per_minute, smaller.tokens_left) == (None, None)
    assert smaller.requests_per_minute == 60
    assert fitting(None, 5) is None


@pytest.mark.parametrize("limit", ["", "0", "0.0000001", "0.99", "-5", "many", "nan", "1e300"])
def test_a_limit_that_makes_no_sense_tells_nothing(limit: str) -> None:
    assert limits_in(openai("requests", limit, "5", "1s"), NOW) is None


def test_garbage_beside_a_limit_leaves_the_limit() -> None:
    rate = limits_in(openai("requests", "60", "-1", "yesterday"), NOW)
    assert rate == RateTold(requests_per_minute=60)
    more_than_all = limits_in(openai("requests", "60", "900", "0s"), NOW)
    assert more_than_all is not None
    assert more_than_all.requests_left == 60


def test_without_such_headers_nothing_is_told() -> None:
    assert limits_in({"content-type": "text/event-stream"}, NOW) is None


NAMES = sorted(
    [
        *openai("requests", "", "", ""),
        *openai("tokens", "", "", ""),
        *anthropic("requests", "", "", ""),
        *anthropic("input-tokens", "", "", ""),
    ]
)
FORMS = st.text(max_size=20) | st.integers().map(str) | st.floats().map(str)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(NAMES), FORMS))
def test_no_headers_tell_a_rate_that_is_none(headers: dict[str, str]) -> None:
    rate = limits_in(headers, NOW)
    if rate is not None:
        for per_minute in (rate.requests_per_minute, rate.tokens_per_minute):
            assert per_minute is None or 1 <= per_minute <= 1e12
        for wait in (rate.requests_full_in_s, rate.tokens_full_in_s):
            assert wait is None or 0 <= wait <= LONGEST_WAIT_S
