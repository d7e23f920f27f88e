"""Keys and a server for all tests. With real models, only the keys would stay."""

import os

import pytest

import paraval.testing


def said(words, label, confidence):
    return {"match": words, "text": f'{{"label": "{label}", "confidence": {confidence}}}'}


ANSWERS = [
    said("invoice", "billing", 0.97),
    said("charged twice", "billing", 0.91),
    said("arcel", "delivery", 0.95),
    said("send back", "returns", 0.88),
    said("thank you", "praise", 0.99),
    said("order 4 is broken", "delivery", 0.41),  # wrong: it should be returned
    said("broken", "returns", 0.82),
]


@pytest.fixture(scope="session")
def server():
    latency = {"median": float(os.environ.get("MODEL_S", "0.9")), "sigma": 0.3}
    with paraval.testing.loopback(answers=ANSWERS, latency=latency, seed=3) as server:
        yield server


@pytest.fixture(autouse=True)
def keys(monkeypatch, server):
    """For every test: the process of each worker has an environment of its own."""
    monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", "test-key")
    monkeypatch.setenv("APP_MODEL", "small")
