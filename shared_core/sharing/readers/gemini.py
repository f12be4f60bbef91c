"""Read what people have of Gemini: the activity in Google Takeout.

Its `My Activity/Gemini Apps/MyActivity.json` is a list of records, newest first, as
https://developers.google.com/data-portability/schema-reference/my_activity documents it. A record holds a prompt in its
title ("Prompted ...") and the answer in `safeHtmlItem[].html`, which Google does not document; several public readers
of real exports agree on it, such as https://github.com/AlexArchitect-Dev/gemini-takeout-refinery. Takeout does not say
which chat a record belongs to, so a new session begins after `PAUSE` without a prompt.
"""

import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any, NamedTuple

from shared_core.display import short
from shared_core.sharing.format import LineError
from shared_core.sharing.readers.conversation import (
    EPOCH,
    Builder,
    Conversation,
    message_of,
    payload_of,
    time_of,
)

GEMINI_FORMAT = "gemini/1"
"""The payload format for data that `Message` has no field for."""

PAUSE = timedelta(minutes=30)
"""The time without a prompt after which a new session begins."""

PROMPTED = re.compile(r"(?:Prompted with:|Asked (?:Gemini|Bard):|Prompted|Asked|Said)\s+")
"""How the title of a prompt begins in English. A title in another language is kept whole."""

ATTACHED = re.compile(r"Attached (\d{1,3}) files?\.?\Z")

FILES = ("imageFile", "audioFiles", "attachedFiles")
_READ = {"header", "title", "time", "products", "activityControls", "safeHtmlItem"}


def is_takeout(whole: Any) -> bool:
    """Return whether a JSON value is a list of activity records, at least one of them of Gemini."""
    records = whole if isinstance(whole, list) else []
    if not all(isinstance(one, dict) and "title" in one and "time" in one for one in records):
        return False
    return any(_is_gemini(one) for one in records)


def _is_gemini(record: Mapping[str, Any]) -> bool:
    products = record.get("products")
    labels = [record.get("header"), *(products if isinstance(products, list) else [])]
    return any("gemini" in one.lower() or "bard" in one.lower() for one in labels if isinstance(one, str))


class Prompt(NamedTuple):
    """A prompt with its answer, from one record."""

    when: datetime
    text: str
    answer: str
    record: Mapping[str, Any]
    files: int


def takeout_sessions(records: Iterable[Any]) -> dict[str, list[Prompt]]:
    """Return session id -> its prompts, oldest first. The id is the time of the first prompt.

    Raises:
        LineError: a record is invalid.
    """
    prompts = sorted(_prompts(records), key=lambda prompt: prompt.when)
    sessions: list[list[Prompt]] = []
    for prompt in prompts:
        if not sessions or prompt.when - sessions[-1][-1].when > PAUSE:
            sessions.append([])
        sessions[-1].append(prompt)
    return {f"gemini-{one[0].when.astimezone(UTC):%Y%m%dT%H%M%SZ}": one for one in sessions}


def _prompts(records: Iterable[Any]) -> Iterator[Prompt]:
    for number, record in enumerate(records, 1):
        title = record.get("title")
        if not _is_gemini(record):
            continue
        if not isinstance(title, str):
            raise LineError(f"record {number} has the title {short(title)}; expected text")
        answer = _answer(record, number)
        prompted, attached = PROMPTED.match(title), ATTACHED.search(title.rstrip())
        if not (answer or prompted):
            continue  # it tells of something else, such as a setting
        text = title[prompted.end() if prompted else 0 : attached.start() if attached else None].strip()
        named = sum(len(value) if isinstance(value, list) else 1 for key in FILES if (value := record.get(key)))
        when = time_of(record.get("time"), EPOCH)
        yield Prompt(when, text, answer, record, max(named, int(attached[1]) if attached else 0))


def _answer(record: Mapping[str, Any], number: int) -> str:
    items = record.get("safeHtmlItem") or []
    if not isinstance(items, list) or not all(isinstance(one, dict) for one in items):
        raise LineError(f"record {number} has safeHtmlItem {short(items)}; expected a list of objects")
    pages = (one.get("html") for one in items)
    return "\n\n".join(text_of_html(page) for page in pages if isinstance(page, str))


def read_takeout(prompts: Sequence[Prompt], id_: str) -> Conversation:
    """Return a session of prompts and answers."""
    builder = Builder()
    last: str | None = None
    for when, text, answer, record, files in prompts:
        said = json.dumps([when.isoformat(), text, answer]).encode()
        key = "gemini-" + blake2b(said, digest_size=12).hexdigest()
        if key in builder.nodes:
            continue  # Takeout holds some records twice
        if files:
            builder.left_out["file"] += files
        data = {name: value for name, value in record.items() if name not in _READ and value}
        payload = payload_of(GEMINI_FORMAT, data)
        prompt = message_of("prompt", role="user", content=text, id=key, created_at=when, payload=payload)
        last = builder.add(prompt, last)
        if answer:
            reply = message_of("answer", role="assistant", content=answer, id=f"{key}-answer", created_at=when)
            last = builder.add(reply, last)
    return builder.finish(id_, _title(prompts[0].text), last)


def _title(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 60 else line[:59] + "…"


# No pattern looks further than the next angle bracket, so the time they take grows with the length of the page alone.
_ITEM = re.compile(r"<li\b[^<>]*>", re.IGNORECASE)
_LINE_END = re.compile(r"<br\b[^<>]*>|</(?:li|tr|h[1-6]|pre|table|ul|ol)\s*>", re.IGNORECASE)
_BLOCK_END = re.compile(r"</(?:p|div|blockquote)\s*>", re.IGNORECASE)
_CELL_END = re.compile(r"</t[dh]\s*>", re.IGNORECASE)
_TAG = re.compile(r"</?[a-zA-Z!][^<>]*>")


def text_of_html(page: str) -> str:
    """Return the words of an HTML fragment, with the breaks between its paragraphs, list items and rows."""
    for pattern, instead in (
        (_ITEM, "- "), (_LINE_END, "\n"), (_BLOCK_END, "\n\n"), (_CELL_END, "  "), (_TAG, ""),
    ):  # fmt: skip
        page = pattern.sub(instead, page)
    text = html.unescape(page).replace("\xa0", " ")
    return re.sub(r"\n{3,}", "\n\n", "\n".join(line.rstrip() for line in text.split("\n"))).strip()
