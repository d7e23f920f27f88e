"""The code around the model, tested as it is: with its cache, its log and its clock."""

import datetime as dt
import logging

import freezegun
import pytest
import triage


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
def empty_cache():
    triage.CACHE.clear()


@pytest.mark.parametrize("number", range(4))
def test_a_mail_that_comes_twice_is_asked_about_once(empty_cache, number):
    """No other test writes to this process's cache meanwhile."""
    mail = f"Where is parcel {number} of the first order?"
    assert triage.sort(mail) is triage.sort(mail)
    assert set(triage.CACHE) == {mail}


@pytest.mark.parametrize("number", range(3))
def test_the_label_is_logged(caplog, number):
    with caplog.at_level(logging.INFO, logger="triage"):
        triage.sort(f"The invoice of the logged order {number} is missing.")
    assert [one.message for one in caplog.records if one.name == "triage"] == ["sorted as billing"]


@pytest.mark.anyio
@pytest.mark.parametrize("number", range(3))
async def test_without_waiting_in_line(number):
    answer = await triage.sort_async(f"I want to send back shoe {number}.")
    assert answer["label"] == "returns"


@freezegun.freeze_time("2031-05-01", real_asyncio=True)  # the server goes on
def test_praise_can_wait_a_week():
    assert triage.due("The tea is good, thank you!") == dt.date(2031, 5, 8)


def test_another_model(monkeypatch):
    monkeypatch.setenv("APP_MODEL", "large")
    assert triage.request("hello")["model"] == "large"
