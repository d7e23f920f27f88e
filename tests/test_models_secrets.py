"""Keys: sent to the provider, and seen nowhere else."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from urllib.parse import quote

import pytest
from hypothesis import given, settings, strategies as st

from paraval.models.http_call import REDACTED, CallResult, HttpCaller
from paraval.models.requests import FailedCall, missing_keys
from paraval.models.secrets import MARK, Redactor
from paraval.records import Grade
from tests.exact_server import (
    ACCOUNT,
    ENDING,
    ENVIRONMENT,
    KEY,
    OPENAI,
    STREAMS,
    Server,
    answered,
    call,
    chat_chunk,
    complaint,
    events,
    http,
    model_of,
    request_of,
    unanswered,
)

# ---- keys


def test_keys_that_are_not_there_are_named() -> None:
    models = [
        model_of(name="a", api_key_env="KEY"),
        model_of(name="b", api_key_env="OTHER"),
        model_of(name="c", api_key_env="BLANK"),
        model_of(name="d", api_key_env=None),
    ]
    missing = missing_keys(models, {**ENVIRONMENT, "BLANK": " \n"})
    assert missing == (("b", "OTHER"), ("c", "BLANK"))


@pytest.mark.parametrize("key", ["", " ", "sk-1234\r\nX-Evil: 1", "sk-1234é"])
def test_without_a_key_that_can_be_sent_no_call_is_made(key: str) -> None:
    async def go() -> tuple[CallResult | FailedCall, int]:
        async with Server(b"") as server:
            return await call(model_of(server), environment={"KEY": key}), server.connections

    end, connections = asyncio.run(go())
    assert isinstance(end, FailedCall)
    assert end.failure.stops == ACCOUNT
    assert end.use.requests == 0
    assert "KEY" in end.failure.message
    assert "1234" not in repr(end)
    assert connections == 0


def test_white_space_around_a_key_is_not_sent() -> None:
    async def go() -> str:
        async with Server(http(events(*STREAMS[OPENAI]))) as server:
            await call(model_of(server), environment={"KEY": f" {KEY}\n"})
            return server.seen[0].headers["authorization"]

    assert asyncio.run(go()) == f"Bearer {KEY}"


def forms(key: str) -> Sequence[str]:
    data = key.encode()
    return [
        key,
        *(base64.b64encode(b"x" * n + data + b"yz").decode() for n in range(3)),
        *(base64.urlsafe_b64encode(b"x" * n + data).decode() for n in range(3)),
        quote(key, safe=""),
        quote(key),
        json.dumps(key)[1:-1],
        data.hex(),
        data.hex().upper(),
    ]


def odd_forms(key: str) -> dict[str, str]:
    """Those that are written with separators, and some more."""
    data = key.encode()
    header = b"some more of the request, such as Authorization: Bearer " + data + b", and so on"
    return {
        "wrapped base64": base64.encodebytes(header).decode(),
        "wrapped base64 in JSON": json.dumps(base64.encodebytes(header).decode()),
        "base64 twice": base64.b64encode(base64.b64encode(data)).decode(),
        "base32": base64.b32encode(data).decode(),
        "percent": "".join(f"%{byte:02X}" for byte in data),
        "small percent": "".join(f"%{byte:02x}" for byte in data),
        "percent twice": quote(quote(key, safe=""), safe=""),
        "\\u": "".join(f"\\u{byte:04x}" for byte in data),
        "\\u in JSON": json.dumps("".join(f"\\u{byte:04X}" for byte in data)),
        "\\x": "".join(f"\\x{byte:02x}" for byte in data),
        "numbers": ", ".join(f"0x{byte:02x}" for byte in data),
        "hex with spaces": data.hex(" "),
        "hex with colons": data.hex(":").upper(),
        "entities": "".join(f"&#{byte};" for byte in data),
        "hex entities": "".join(f"&#x{byte:x};" for byte in data),
        "capitals": key.upper(),
        "small letters": key.lower(),
        "JSON in JSON": json.dumps(json.dumps(key)),
        "over two lines": f"{key[:9]}\r\n    {key[9:]}",
        "zero width": f"{key[:9]}\u200b{key[9:]}",
        "spaced": " ".join(key),
    }


@pytest.mark.parametrize("form", odd_forms(KEY))
def test_a_key_is_found_however_it_is_spelt(form: str) -> None:
    spelt = odd_forms(KEY)[form]
    redactor = Redactor([KEY])
    assert redactor.is_in([f"Your key: {spelt}!"])
    cleaned = redactor.text(f"Your key: {spelt}!")
    assert MARK in cleaned
    assert cleaned.startswith("Your key: ")
    assert cleaned.endswith("!")
    assert not redactor.is_in([cleaned])
    assert all(part not in cleaned for part in parts_of(KEY))


@pytest.mark.parametrize("secret", [KEY, "correcthorse", "pässword one"])
@pytest.mark.parametrize(
    "code",
    [
        *("\x1b[31m", "\x1b[1;31;4m\x1b[0m", "\x9b0m", "\x1b]8;;https://a.b\x1b\\", "\x1b]0;t\x07"),
        *("\x1bP1$r\x1b\\", "\x1b(B", "\\u001b[31m", "\\x1b[0m", "\\033[0m"),
    ],
)
def test_a_key_is_found_with_terminal_codes_between_its_letters(secret: str, code: str) -> None:
    redactor = Redactor([secret])
    for text in (code.join(secret), f"{secret[:9]}{code}{secret[9:]}"):
        assert redactor.is_in([f"it is {text} now"])
        assert redactor.text(f"it is {text} now") == "it is [REDACTED] now"
    assert redactor.text(f"it is {code} now") == f"it is {code} now"


def test_codes_without_end_do_not_hold_up_the_looking() -> None:
    for text in ("\x1b[" * 200_000, KEY[:8] + "\x1b[1m" * 100_000, "\x1b]8;;" * 100_000):
        began = time.monotonic()
        Redactor([KEY]).text(text + KEY)
        assert time.monotonic() - began < 20


def test_records_are_looked_through_and_stay_the_same_object_where_nothing_is_found() -> None:
    redactor = Redactor([KEY])
    record = Grade(grader="g", score=1.0, passed=True, reason=f"a {KEY}")
    assert redactor.data((record, {1: [record]})) == (
        replace(record, reason="a [REDACTED]"),
        {1: [replace(record, reason="a [REDACTED]")]},
    )
    clean = (replace(record, reason="a"), 1, None)
    assert redactor.data(clean) is clean


def test_a_password_that_is_a_word_is_taken_out_only_as_it_stands() -> None:
    redactor = Redactor(["pineapple"])
    assert redactor.text("Pine apple, Pineapple, pineapple") == f"Pine apple, Pineapple, {MARK}"


def test_many_keys_are_kept_apart_and_all_found() -> None:
    keys = [f"sk-{number:04}-abcdefgh" for number in range(500)]
    redactor = Redactor(keys)
    assert redactor.text(f"{keys[0]} and {keys[499].upper()}") == f"{MARK} and {MARK}"
    assert not redactor.is_in(["sk-0500-abcdefgh"])


def test_separators_without_end_do_not_hold_up_the_looking() -> None:
    echo = f"{KEY[:5]}{chr(92) * 200_000}{KEY} s{' ' * 200_000}s{chr(92)}n"
    assert KEY not in Redactor([KEY]).text(echo)


def parts_of(form: str) -> list[str]:
    """What of it tells something of the key, whatever stands around it."""
    return [form[start : start + 12] for start in range(3, len(form) - 15, 6)]


@pytest.mark.parametrize("form", forms(KEY))
def test_a_key_that_is_echoed_is_taken_out_of_an_answer(form: str) -> None:
    letters = [chat_chunk(letter) for letter in f"Your key: {form}!"]
    tool = chat_chunk(tool_calls=[{"function": {"name": form, "arguments": form}}])
    got = answered(http(events(*letters, tool, *ENDING), headers=f"X-Request-Id: {form}\r\n"))
    assert got.text.startswith("Your key: ")
    assert got.text.endswith("!")
    assert MARK in got.text
    assert REDACTED in got.notes
    assert all(part not in repr(got) for part in parts_of(form))


@pytest.mark.parametrize("form", forms(KEY))
def test_a_key_that_is_echoed_is_taken_out_of_a_complaint(form: str) -> None:
    refusals = [
        http(complaint(f"Incorrect API key: {form}"), "401 X"),
        http(form, "500 X"),
        http("", "302 X", f"Location: https://else.example/?{form}\r\n"),
        http(f"<html><title>{form}</title>"),
        http(events({"error": form})),
        http(form),
        http("x" * 290 + form, "500 X"),
        http(complaint("x" * 290 + form), "400 X"),
        http("x" * 280 + form),
        http(f"{form}{{", headers="Content-Type: application/json\r\n"),
        http(f'{{"{form}": 1, "{form}": 2}}'),
        http(events({form: 1}, form)),
        http(b"HTTP/1.1 " + form.encode()),
        form.encode() + b"\r\n\r\n",
    ]
    for reply in refusals:
        end = unanswered(reply)
        assert end.failure.message.isprintable()
        assert all(part not in repr(end) for part in parts_of(form))


def test_a_key_in_the_place_of_a_number_or_a_name_is_not_shown() -> None:
    usage = {"choices": [], "usage": {"prompt_tokens": KEY, "completion_tokens": 1}}
    odd = chat_chunk("x", finish_reason="y" * 190 + KEY)
    got = answered(http(events(odd, usage, "[DONE]")))
    assert got.usage is None
    assert all(part not in repr(got) for part in parts_of(KEY))


def test_a_short_key_is_left_so_that_answers_stay_as_they_are() -> None:
    redactor = Redactor(["none"])
    assert redactor.text("none of bm9uZQ== 6e6f6e65") == "none of bm9uZQ== 6e6f6e65"


def test_a_text_without_a_secret_stays_the_same_object() -> None:
    text = "nothing to see"
    assert Redactor([KEY]).text(text) is text
    assert not Redactor([KEY]).is_in([text])


@settings(deadline=None)
@given(
    secret=st.text(st.characters(codec="ascii", categories=["L", "N", "P"]), min_size=8),
    around=st.text(),
)
def test_no_secret_survives(secret: str, around: str) -> None:
    redactor = Redactor([secret])
    assert secret not in redactor.text(f"{around}{secret}{around}").replace(MARK, "\0")


def test_the_key_is_not_shown_by_anything_that_a_wire_says_of_itself() -> None:
    async def go() -> str:
        async with (
            Server(http(events(*STREAMS[OPENAI]))) as server,
            HttpCaller(environment=ENVIRONMENT, addresses={}) as wire,
        ):
            got = await wire.call(request_of(model_of(server)))
            return repr(wire) + repr(got)

    assert KEY not in asyncio.run(go())
