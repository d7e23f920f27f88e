"""Prompts with one right answer. Each is a test, and each waits for a model."""

import pytest

CAPITALS = {
    "France": "Paris",
    "Japan": "Tokyo",
    "Kenya": "Nairobi",
    "Peru": "Lima",
    "Norway": "Oslo",
    "Ghana": "Accra",
    "Australia": "Canberra",
}


@pytest.mark.parametrize("country", CAPITALS)
def test_capital(model, country):
    answer = model.ask(f"What is the capital of {country}?", temperature=0)
    assert CAPITALS[country] in answer.text


@pytest.mark.parametrize("number", [7, 12, 144, 365, 999, 1001, 2026])
def test_number_is_repeated(model, number):
    assert str(number) in model.ask(f"Repeat the number {number}.").text
