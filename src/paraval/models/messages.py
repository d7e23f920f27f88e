"""Conversations and images: read from the lists of messages that cases have, and encoded for
requests."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Mapping
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

from paraval.documents.problems import shown
from paraval.records import Image, Message

ROLES = ("system", "user", "assistant")
LARGEST_IMAGE_BYTES = 10 << 20
_URLS = ("https://", "http://", "data:image/")
_STARTS = {
    b"\x89PNG\r\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"RIFF": "image/webp",
}
"""The first bytes of a file -> its type."""


class MessageError(ValueError):
    """Why a list of messages, or an image, cannot be used."""


def read_messages(written: Any, folder: str | None) -> tuple[Message, ...]:
    """Return the messages of a case's input; MessageError if it is not a list of messages.

    `folder`: where image files are; None: don't look at the files.
    """
    if not isinstance(written, list | tuple) or not written:
        raise MessageError(f"must be a list of messages, not {shown(written)}")
    messages = []
    for number, item in enumerate(written, start=1):
        try:
            messages.append(_read_message(item, folder))
        except MessageError as error:
            raise MessageError(f"message {number}: {error}") from None
    return tuple(messages)


def messages_problem(written: Any) -> str | None:
    """Return why a value is not a list of messages, if it is not; files are not looked at."""
    try:
        read_messages(written, None)
    except MessageError as error:
        return str(error)
    return None


def image_digests(written: Any, folder: str) -> list[str]:
    """Return the digests of all image files in a list of messages, in order."""
    parts = (part for message in read_messages(written, folder) for part in message.parts)
    return [part.digest for part in parts if isinstance(part, Image) and part.digest]


def _read_message(written: Any, folder: str | None) -> Message:
    if not isinstance(written, Mapping) or not {"role", "content"} <= written.keys():
        raise MessageError(f"must be a mapping with role and content, not {shown(written)}")
    if unknown := sorted(map(str, written.keys() - {"role", "content"})):
        raise MessageError(f"unknown key '{unknown[0]}'; a message has role and content")
    role, content = written["role"], written["content"]
    if role not in ROLES:
        raise MessageError(f"its role must be one of {', '.join(ROLES)}, not {shown(role)}")
    if isinstance(content, str):
        return Message(role=role, content=content)
    if not isinstance(content, list | tuple) or not content:
        raise MessageError(f"its content must be text or a list of parts, not {shown(content)}")
    parts = tuple(_read_part(part, folder) for part in content)
    images = [part for part in parts if isinstance(part, Image)]
    if images and role != "user":
        raise MessageError("only messages of the role user can have images")
    text = "\n".join(part for part in parts if isinstance(part, str))
    return Message(role=role, content=text, parts=parts if images else ())


def _read_part(written: Any, folder: str | None) -> str | Image:
    """A part of our own form (text, image) or of OpenAI's (type: text, type: image_url)."""
    if isinstance(written, str):
        return written
    if isinstance(written, Mapping):
        keys = written.keys() - {"type"}
        source = written.get("image", written.get("image_url"))
        if isinstance(source, Mapping):
            source = source.get("url")
        if keys == {"text"} and isinstance(written["text"], str):
            return written["text"]
        if keys in ({"image"}, {"image_url"}) and isinstance(source, str) and source:
            return read_image(source, folder)
    raise MessageError(
        f"a part must be text, {{text: ...}} or {{image: ...}}, not {shown(written)}"
    )


def read_image(source: str, folder: str | None) -> Image:
    """Return an image by its URL, or the path of a file; MessageError if it cannot be used."""
    if source.startswith(_URLS) or folder is None:
        return Image(source=source)
    path = os.path.normpath(Path(folder) / source)
    try:
        state = os.stat(path)  # noqa: PTH116 - a name too long is an OSError too
        return _image_file(path, state.st_size, state.st_mtime_ns)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise MessageError(f"image '{source}': {reason}") from None


@lru_cache(maxsize=4096)
def _image_file(path: str, size: int, _changed: int) -> Image:
    """`_changed`: the time, so that a changed file is read again."""
    if size > LARGEST_IMAGE_BYTES:
        limit = LARGEST_IMAGE_BYTES >> 20
        raise ValueError(f"it has {size / (1 << 20):.1f} MB; the limit is {limit} MB")
    content = Path(path).read_bytes()
    for start, media_type in _STARTS.items():
        if content.startswith(start) and (start != b"RIFF" or content[8:12] == b"WEBP"):
            digest = blake2b(content, digest_size=16).hexdigest()
            return Image(source=path, media_type=media_type, digest=digest)
    raise ValueError("it is not a PNG, JPEG, GIF or WebP file")


def image_url(image: Image) -> str:
    """The URL of an image to send; a file becomes a `data:` URL. ValueError if it is gone."""
    if not image.digest:
        return image.source
    try:
        content = Path(image.source).read_bytes()
    except OSError as error:
        raise ValueError(f"image '{image.source}': {error.strerror}") from error
    return f"data:{image.media_type};base64,{base64.b64encode(content).decode()}"


def message_words(message: Message) -> tuple[Any, ...]:
    """What decides an answer to a message: role and text, and what few messages have besides."""
    more = [*_more_words(message)]
    return (message.role, message.content, more) if more else (message.role, message.content)


def _more_words(message: Message) -> Iterator[Any]:
    for part in message.parts:
        yield part if isinstance(part, str) else [part.digest or part.source]
    for call in message.tool_calls:
        yield [call.name, call.arguments, call.id]
    if message.result_of is not None:
        yield [message.result_of.id, message.result_of.failed]
