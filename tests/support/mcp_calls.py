"""Calls of an MCP server with the SDK's own client, and servers as processes of their own."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mcp import Client, StdioServerParameters
from mcp.types import CallToolResult

from shared_core.doors.mcp_server.conversations import Conversations
from shared_core.doors.mcp_server.fenced_records import FOOTER, HEADER
from shared_core.doors.mcp_server.server import MemoryServer
from shared_core.testing import HashingEmbedder
from shared_core.tokens import as_counter
from tests.support.documents import ROOT

ENVIRONMENT = {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "INFINITE_MEMORY_EMBEDDER": "static"} | {
    name: os.environ[name] for name in ("TIKTOKEN_CACHE_DIR",) if name in os.environ
}
COMMAND = ["-m", "shared_core", "mcp"]


@contextmanager
def served(store: Any, *, user: str | None = None, session: str | None = None) -> Iterator[MemoryServer]:
    """Provide a server in this process."""
    conversations = Conversations(store, session=session, embedder=HashingEmbedder())
    try:
        yield MemoryServer(conversations, user=user, version="1")
    finally:
        conversations.close()


def stdio(*arguments: str) -> StdioServerParameters:
    """Return how a client starts the command as a process of its own."""
    return StdioServerParameters(command=sys.executable, args=[*COMMAND, *arguments], env=ENVIRONMENT)


@contextmanager
def http(*arguments: str, ends: int = signal.SIGTERM) -> Iterator[str]:
    """Provide the URL of the command as a process of its own, which a signal ends; then it must have said nothing."""
    command = [sys.executable, *COMMAND, "--http", "--port", "0", *arguments]
    environment = os.environ | ENVIRONMENT
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            said = process.stderr.readline()
            assert "serving MCP at " in said, said + process.stderr.read()
            yield said.partition("serving MCP at ")[2].partition(";")[0]
        finally:
            process.send_signal(ends)
            rest = process.stderr.read()
    assert "Traceback" not in rest, rest


RECORD = re.compile(
    r"- (?P<at>\d\d:\d\d) \[(?P<id>[^]]*)\] (?P<who>[^\n]*?)(?: \((?P<notes>[^()\n]*)\))?: (?P<text>.*)", re.S
)


async def said(client: Client, tool: str, **arguments: Any) -> tuple[str, dict[str, Any]]:
    """Return the text that a tool answers with, and what it says: records and notes; its fences must hold."""
    result = await client.call_tool(tool, arguments)
    text = text_of(result)
    assert not result.is_error, text
    assert result.structured_content is None
    records: list[str] = []
    for line in between(text):
        if line.startswith("- "):
            records.append(line)
        elif line.startswith("  "):
            records[-1] += f"\n{line[2:]}"
    found = [match.groupdict() for record in records if (match := RECORD.fullmatch(record))]
    notes = [line.removeprefix("note: ") for line in text.splitlines() if line.startswith("note: ")]
    left = [int(note.split()[0]) for note in notes if "more did not fit" in note]
    stored = re.search(r"^stored .*?: (.*)$", text, re.M)
    size = as_counter(None)(text.partition("\nnote: ")[0])
    return text, {
        "records": found, "lines": records, "notes": notes, "left_out": sum(left), "tokens": size,
        "ids": stored[1].split(", ") if stored else [],
    }  # fmt: skip


async def refused(client: Client, tool: str, **arguments: Any) -> str:
    """Return the error that a tool answers with."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, result
    return text_of(result)


def text_of(result: CallToolResult) -> str:
    (content,) = result.content
    assert content.type == "text"
    return content.text


def between(text: str) -> list[str]:
    """Return the lines between the fences; there is at most one pair, and the footer is on a line of its own."""
    lines = text.splitlines()
    if FOOTER not in lines:
        assert "<records>" not in text
        assert FOOTER not in text
        return []
    assert lines.count(FOOTER) == 1 == text.count("<records>"), text
    assert text.count(FOOTER) == 1, text
    return lines[lines.index("<records>") + len(HEADER.splitlines()) : lines.index(FOOTER)]
