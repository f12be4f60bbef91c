"""Read what people have of Gemini: the activity in Google Takeout, and requests of the Gemini API.

Takeout's `My Activity/Gemini Apps/MyActivity.json` is a list of records, newest first, as
https://developers.google.com/data-portability/schema-reference/my_activity documents it. A record holds a prompt in its
title ("Prompted ...") and the answer in `safeHtmlItem[].html`, which Google does not document; several public readers
of real exports agree on it, such as https://github.com/AlexArchitect-Dev/gemini-takeout-refinery. Takeout does not say
which chat a record belongs to, so a new session begins after `PAUSE` without a prompt.

Requests of the API hold `contents` with `parts`: https://ai.google.dev/api/generate-content.
"""

import html
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any, NamedTuple

from shared_core.display import short
from shared_core.errors import InputFileError
from shared_core.messages import Message, ToolCall
from shared_core.sharing.format import LineError
from shared_core.sharing.readers.conversation import (
    EPOCH,
    Builder,
    Conversation,
    list_of,
    message_of,
    payload_of,
    role_of,
    time_of,
)

GEMINI_FORMAT = "gemini/1"
"""The payload format for data that `Message` has no field for."""

PAUSE = timedelta(minutes=30)
"""The time without a prompt after which a new session begins."""

PROMPTED = re.compile(r"(?:Prompted with:|Asked (?:Gemini|Bard):|Prompted|Asked|Said)\s+")
"""How the title of a prompt begins in English. A title in another language is kept whole."""

OTHER_ACTIVITY = (
    "Created ", "Used ", "Added ", "Gave ", "Selected ", "Shared ", "Deleted ", "Viewed ", "Visited ", "Searched ",
    "Edited ", "Pinned ", "Renamed ", "Exported ", "Updated ",
)  # fmt: skip
"""How the title of anything but a prompt begins in English."""

ATTACHED = re.compile(r"Attached (\d{1,3}) files?\.?\Z")

FILES = ("imageFile", "audioFiles", "attachedFiles")
_READ = {"header", "title", "time", "products", "activityControls", "safeHtmlItem"}

# Takeout


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
        if title.startswith(OTHER_ACTIVITY) or not (answer or prompted):
            continue
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


# The API


def is_gemini_api(whole: Any, entries: Sequence[tuple[str, Any]]) -> bool:
    """Return whether a JSON value is a request of the Gemini API, or its `contents`."""
    if isinstance(whole, dict) and isinstance(whole.get("contents"), list):
        return True
    messages = [entry for _, entry in entries]
    return bool(messages) and all(
        isinstance(one, dict) and isinstance(one.get("parts"), list) and "content" not in one for one in messages
    )


def read_gemini_api(name: str, whole: Any, entries: Iterable[tuple[str, Any]]) -> Conversation:
    """Return a list of messages; the system instruction comes first. Ids are digests, as for Anthropic's messages.

    Raises:
        InputFileError: a message is invalid.
    """
    located = list(entries)
    if isinstance(whole, dict) and isinstance(whole.get("contents"), list):
        located = [(f"contents, message {number}", one) for number, one in enumerate(whole["contents"], 1)]
    system = (whole.get("systemInstruction") or whole.get("system_instruction")) if isinstance(whole, dict) else None
    if system:
        located.insert(0, ("systemInstruction", system | {"role": "system"} if isinstance(system, dict) else system))
    messages: list[Message] = []
    left_out: Counter[str] = Counter()
    answered: Counter[str] = Counter()
    for location, entry in located:
        try:
            messages += _turn(entry, messages[-1].id if messages else "", left_out, answered)
        except (LineError, RecursionError) as error:
            raise InputFileError(f"{name!r}, {location}: {error}") from None
    return list_of(messages, left_out=left_out)


def _turn(entry: Any, previous: str | None, left_out: Counter[str], answered: Counter[str]) -> list[Message]:
    """Return the messages of one entry of `contents`: what is said, and each result of a function.

    Args:
        entry: the entry.
        previous: the id of the message before it.
        left_out: counts what is not stored.
        answered: counts the results of each function since the last calls.
    """
    parts = entry.get("parts") if isinstance(entry, dict) else None
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise LineError(f'{short(entry)} is not a message; expected an object with "role" and "parts"')
    role = role_of("user" if entry.get("role") in (None, "function", "tool") else entry["role"])
    found: list[dict[str, Any]] = []
    texts: list[str] = []
    calls: list[ToolCall] = []
    kept: list[Any] = []
    called: Counter[str] = Counter()
    for part in parts:
        call = part.get("functionCall") or part.get("function_call")
        result = part.get("functionResponse") or part.get("function_response")
        if call:
            calls.append(_function(call, called))
            answered.clear()
        elif result:
            found.append(_function_result(result, answered))
        elif isinstance(part.get("text"), str) and not part.get("thought"):
            texts.append(part["text"])
        else:
            kept.append(part)
            if part.get("fileData") or part.get("file_data"):
                left_out["file"] += 1
    if texts or calls or kept or not found:
        said: dict[str, Any] = {"role": role, "content": "\n".join(texts), "tool_calls": tuple(calls)}
        found.append(said | {"payload": payload_of(GEMINI_FORMAT, {"parts": kept} if kept else None)})
    messages: list[Message] = []
    for fields in found:
        named = [[call.id, call.name, call.arguments] for call in fields.get("tool_calls", ())]
        digest = json.dumps([previous, fields["role"], fields["content"], named, fields.get("tool_call_id")])
        previous = "import-" + blake2b(digest.encode(), digest_size=16).hexdigest()
        messages.append(message_of("message", id=previous, **fields))
    return messages


def _function(call: Any, called: Counter[str]) -> ToolCall:
    name = call.get("name") if isinstance(call, dict) else None
    if not isinstance(name, str):
        raise LineError(f'function call {short(call)} is invalid; expected "name" and "args"')
    arguments = json.dumps(call.get("args") or {}, ensure_ascii=False)
    return ToolCall(id=_function_id(call, called), name=name, arguments=arguments)


def _function_result(result: Any, answered: Counter[str]) -> dict[str, Any]:
    name = result.get("name") if isinstance(result, dict) else None
    if not isinstance(name, str):
        raise LineError(f'function response {short(result)} is invalid; expected "name" and "response"')
    given = result.get("response")
    content = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    return {"role": "tool", "content": content, "tool_call_id": _function_id(result, answered), "name": name}


def _function_id(one: Mapping[str, Any], seen: Counter[str]) -> str:
    """Return the id of a call or of the one that a result answers.

    Older requests link a result to its call only by the function's name: the first result is that of the first call.
    """
    named = one.get("id")
    if isinstance(named, str) and named:
        return named
    name = one["name"]
    seen[name] += 1
    return f"function:{name}" if seen[name] == 1 else f"function:{name}#{seen[name]}"
