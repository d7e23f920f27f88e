"""What the tests are about: an assistant that sorts a shop's mail, with OpenAI's client."""

import datetime as dt
import functools
import json
import logging
import os

import openai

LABELS = ("billing", "delivery", "returns", "praise")
CACHE: dict[str, dict] = {}
"""Answers by mail: a mail that comes twice is asked about once."""
log = logging.getLogger("triage")


openai.OpenAI(api_key="any").chat  # loads what the first call would, in each worker


@functools.cache
def client():
    """Made when it is first used; key and address are in the environment."""
    return openai.OpenAI()


def request(mail):
    prompt = f"Sort this mail into one of {', '.join(LABELS)}.\n\n{mail}"
    return {"model": os.environ["APP_MODEL"], "messages": [{"role": "user", "content": prompt}]}


def read(response):
    answer = json.loads(response.choices[0].message.content)
    log.info("sorted as %s", answer["label"])
    return answer


def sort(mail):
    """Its label, and how sure the model is."""
    if mail not in CACHE:
        CACHE[mail] = read(client().chat.completions.create(**request(mail)))
    return CACHE[mail]


async def sort_async(mail):
    async with openai.AsyncOpenAI() as own:
        return read(await own.chat.completions.create(**request(mail)))


def due(mail):
    """The day by which someone answers: praise can wait."""
    days = 7 if sort(mail)["label"] == "praise" else 1
    return dt.date.today() + dt.timedelta(days=days)
