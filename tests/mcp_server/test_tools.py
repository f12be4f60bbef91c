"""The tools, asked by the SDK's client in one process: what they answer, their limits, and what they refuse."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp import Client

from shared_core import InfiniteMemory, Message, SQLiteStore, ToolCall
from shared_core.doors.mcp_server.server import BUSY, UNUSABLE
from shared_core.errors import StoreError, StoreUnavailableError
from shared_core.messages import storable
from shared_core.records import ALL
from shared_core.testing import HashingEmbedder
from shared_core.tokens import as_counter
from tests.support.mcp_calls import between, refused, said, served, text_of

READS = {"search", "recall", "read", "log", "sessions"}

Talk = Callable[[Client], Awaitable[None]]


def talk(store: Any, steps: Talk, *, user: str | None = "ann", session: str | None = None) -> None:
    """Let a client talk to a server of the store."""

    async def run() -> None:
        with served(store, user=user, session=session) as server:
            async with Client(server) as client:
                await steps(client)

    asyncio.run(run())


def fill(store: Any, count: int, *, session: str = "default", user: str | None = "ann") -> None:
    """Store a conversation; its messages are m0, m1 and so on."""
    texts = [(f"m{number}", f"Part {number} is about {number * 7}.") for number in range(count)]
    said = [Message(role="assistant" if id[-1] in "13579" else "user", content=text, id=id) for id, text in texts]
    with InfiniteMemory(store, session_id=session, user_id=user, embedder=HashingEmbedder()) as memory:
        memory.add(said)


def test_every_tool_says_whether_it_changes_anything(store: SQLiteStore) -> None:
    async def steps(client: Client) -> None:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(tools) == READS | {"remember", "forget"}
        kinds = {
            name: (a.read_only_hint, a.destructive_hint, a.idempotent_hint, a.open_world_hint)
            for name, tool in tools.items()
            if (a := tool.annotations) is not None
        }
        assert kinds == {
            **dict.fromkeys(READS, (True, False, True, False)),
            "remember": (False, False, False, False),
            "forget": (False, True, True, False),
        }
        for tool in tools.values():
            assert tool.input_schema["additionalProperties"] is False
            assert tool.output_schema is None
            assert tool.description is not None
            assert "  " not in tool.description
        assert "confirmation" not in tools["forget"].input_schema.get("required", [])

    talk(store, steps)


def test_the_definitions_take_few_tokens_and_show_what_this_server_can_do(store: SQLiteStore) -> None:
    listed: list[dict[str, Any]] = []

    async def steps(client: Client) -> None:
        listed[:] = [tool.model_dump(mode="json", exclude_none=True) for tool in (await client.list_tools()).tools]

    def arguments() -> set[str]:
        return {name for tool in listed for name in tool["input_schema"]["properties"]}

    talk(store, steps)
    assert as_counter("o200k_base")(json.dumps(listed)) <= 1_500
    assert {"scope", "session"} <= arguments()
    talk(store, steps, user=None)
    assert "scope" not in arguments(), "there is no user whose other conversations could be searched"
    talk(store, steps, session="plans")
    assert not {"scope", "session"} & arguments()


def test_content_is_text_and_what_is_pinned_is_part_of_every_recall(store: SQLiteStore) -> None:
    async def steps(client: Client) -> None:
        await said(client, "remember", messages=[{"role": "user", "content": "Answer in French.", "pinned": True}])
        for number in range(40):
            await said(client, "remember", messages=[{"content": f"Part {number} is about {number * 7}."}])
        _, data = await said(client, "recall", question="What is part 12 about?", max_tokens=200)
        assert "Answer in French." in [record["text"] for record in data["records"]]
        assert "Part 12 is about 84." in [record["text"] for record in data["records"]]

    talk(store, steps)


def test_what_is_remembered_is_recalled_with_id_and_date(store: SQLiteStore) -> None:
    async def steps(client: Client) -> None:
        text, _ = await said(client, "recall", question="Which hotel?")
        assert text == "nothing was said yet; remember stores it"
        _, stored = await said(
            client, "remember",
            messages=[{"text": "We loved the Casa Azul."}, {"text": "Noted.", "role": "assistant", "name": "Bo"}],
        )  # fmt: skip
        text, data = await said(client, "recall", question="Which hotel did we love?")
        assert [record["id"] for record in data["records"]] == [id[:8] for id in stored["ids"]]
        assert [(one["who"], one["text"]) for one in data["records"]] == [
            ("user", "We loved the Casa Azul."), ("Bo", "Noted."),
        ]  # fmt: skip
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", between(text)[0])

    talk(store, steps)


def test_recall_brings_old_messages_within_its_tokens(store: SQLiteStore) -> None:
    fill(store, 300)
    with InfiniteMemory(store, user_id="ann", embedder=HashingEmbedder()) as memory:
        memory.add([Message.system("Be brief. " * 300), Message.user("Bring me my umbrella.", id="last")])

    async def steps(client: Client) -> None:
        for most in (100, 300, 2_000):
            text, data = await said(client, "recall", question="What is part 12 about?", max_tokens=most)
            assert data["tokens"] <= most
            assert "m12" in [record["id"] for record in data["records"]]
            assert "Be brief" not in text, "a system prompt was not said by anybody"
        assert data["tokens"] > 1_500
        assert data["records"][-1]["id"] == "last"
        numbers = [int(record["id"][1:]) for record in data["records"][:-1]]
        assert numbers == sorted(numbers)

    talk(store, steps)


def test_answers_are_bounded_and_say_what_was_cut(store: SQLiteStore) -> None:
    fill(store, 150)

    async def steps(client: Client) -> None:
        text, data = await said(client, "search", query="part", top_k=50, max_tokens=200)
        assert data["tokens"] <= 200
        assert data["left_out"] == 50 - len(data["records"]) > 30
        assert f"{data['left_out']} more did not fit in max_tokens=200: raise it, or ask for less" in data["notes"]
        assert "note: top_k=50 reached: there may be more" in text
        _, data = await said(client, "log", limit=100, max_tokens=20_000)
        assert [record["id"] for record in data["records"]] == [f"m{number}" for number in range(50, 150)]
        assert data["notes"] == []
        _, data = await said(client, "log", limit=2)
        assert [record["id"] for record in data["records"]] == ["m148", "m149"]

    talk(store, steps)


def test_a_message_is_read_whole_and_a_long_one_in_parts(store: SQLiteStore) -> None:
    fill(store, 9)
    long = " ".join(f"word{number}" for number in range(3_000))
    with InfiniteMemory(store, user_id="ann", embedder=HashingEmbedder()) as memory:
        call = ToolCall(id="c", name="weather", arguments='{"town": "Lisbon"}')
        memory.add([Message.user("Rain?", id="q"), Message.assistant(tool_calls=(call,), id="call")])
        memory.add([Message.tool("No.", "c", id="result"), Message.user(long, id="long", grounding="From a book.")])

    async def steps(client: Client) -> None:
        _, data = await said(client, "read", id="m4", before=1, after=2)
        assert [record["id"] for record in data["records"]] == ["m3", "m4", "m5", "m6"]
        _, data = await said(client, "read", id="call", before=0, after=0)
        assert [record["text"] for record in data["records"]] == ['calls weather({"town": "Lisbon"})']
        whole, offset = "", 0
        while True:
            _, data = await said(client, "read", id="long", before=0, after=0, offset=offset)
            (record,) = data["records"]
            whole += record["text"].removesuffix(" […]") if data["notes"] else record["text"]
            if not data["notes"]:
                break
            (note,) = data["notes"]
            offset = len(whole)
            assert note.endswith(f"read(id='long', offset={offset}) goes on")
        assert whole == f"From a book.\n\n{long}"
        assert f"offset={10**6}: message 'long' has {len(whole):,} characters" in await refused(
            client, "read", id="long", offset=10**6
        )

    talk(store, steps)


def test_a_conversation_that_is_empty_can_be_asked(store: SQLiteStore) -> None:
    async def steps(client: Client) -> None:
        calls: list[tuple[str, dict[str, Any]]] = [
            ("log", {}), ("search", {"query": "x"}), ("recall", {"question": "x"}), ("sessions", {}),
            ("forget", {"whole_session": True}),
        ]  # fmt: skip
        for tool, arguments in calls:
            await said(client, tool, **arguments)
        assert "no message 'm1': nothing is stored yet" in await refused(client, "read", id="m1")

    talk(store, steps)


async def dry_run(client: Client, **which: Any) -> dict[str, Any]:
    """Return what a dry run of `forget` shows, with the number of messages and the confirmation."""
    text, data = await said(client, "forget", **which)
    head = re.match(r"dry run: nothing was erased; (\d+) messages? would be\n?", text)
    assert head, text
    confirmation = re.search(r"confirmation=(\S+)", text)
    return {**data, "messages": int(head[1]), "confirmation": confirmation and confirmation[1]}


def test_nothing_is_erased_without_the_confirmation_of_a_dry_run(store: SQLiteStore) -> None:
    fill(store, 30)

    async def steps(client: Client) -> None:
        async def count() -> int:
            text, _ = await said(client, "sessions")
            return sum(map(int, re.findall(r": (\d+) messages?", text)))

        dry = await dry_run(client, ids=["m1", "m2"])
        assert (dry["messages"], [one["id"] for one in dry["records"]]) == (2, ["m1", "m2"])
        for wrong in ("", "yes", "true", dry["confirmation"][:-1], dry["confirmation"] + "0"):
            assert "nothing was erased" in await refused(client, "forget", ids=["m1", "m2"], confirmation=wrong)
        for other in ({"ids": ["m1", "m3"]}, {"ids": ["m1"]}, {"whole_session": True}, {"before": "2100-01-01"}):
            assert "nothing was erased" in await refused(client, "forget", **other, confirmation=dry["confirmation"])
        assert await count() == 30
        text, _ = await said(client, "forget", ids=["m2", "m1"], confirmation=dry["confirmation"])
        assert text == "erased 2 messages for good"
        assert await count() == 28
        assert "no message 'm1'" in await refused(client, "forget", ids=["m1"])
        # What would be erased has changed since the dry run.
        dry = await dry_run(client, whole_session=True)
        assert (dry["messages"], len(dry["records"]), dry["notes"][:-1]) == (
            28, 20, ["8 more messages would be erased, which are not shown"],
        )  # fmt: skip
        await said(client, "remember", messages=[{"text": "One more."}])
        assert "nothing was erased" in await refused(
            client, "forget", whole_session=True, confirmation=dry["confirmation"]
        )
        dry = await dry_run(client, before="2100-01-01")
        text, _ = await said(client, "forget", before="2100-01-01", confirmation=dry["confirmation"])
        assert (text, await count()) == ("erased 29 messages for good", 0)
        assert (await dry_run(client, before="2100-01-01"))["confirmation"] is None

    talk(store, steps)


def test_a_confirmation_of_another_server_is_none(store: SQLiteStore) -> None:
    fill(store, 3)
    given: list[str] = []

    async def dry(client: Client) -> None:
        given.append((await dry_run(client, ids=["m1"]))["confirmation"])

    async def steps(client: Client) -> None:
        assert "nothing was erased" in await refused(client, "forget", ids=["m1"], confirmation=given[0])

    talk(store, dry)
    talk(store, steps)


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("search", {}, "query: field required"),
    ("search", {"query": ""}, "query: string should have at least 1 character"),
    ("search", {"query": "x", "top_k": 51}, "top_k: input should be less than or equal to 50"),
    ("search", {"query": "x", "top_k": "many"}, "top_k: input should be a valid integer"),
    ("search", {"query": "x", "since": "soon"}, "since='soon': expected a time, such as '2026-01-31'"),
    ("search", {"query": "x", "role": "robot"}, "role: input should be '"),
    ("search", {"query": "x", "limit": 5}, "search has no argument 'limit'; it has query, top_k, since"),
    ("recall", {"question": "x", "max_tokens": 99}, "max_tokens: input should be greater than or equal to 100"),
    ("recall", {"question": "x" * 20_001}, "question: string should have at most 20000 characters"),
    ("recall", {"question": "x", "session": "nowhere"}, "there is no session 'nowhere'; the newest are: 'default'"),
    ("read", {"id": "nothing"}, "no branch or message 'nothing'; branches: 'main'"),
    ("read", {"id": "m1", "before": -1}, "before: input should be greater than or equal to 0"),
    ("remember", {"messages": []}, "messages: list should have at least 1 item"),
    ("remember", {"messages": [{"text": "x", "role": "system"}]}, "messages.0.role: input should be 'user' or"),
    ("remember", {"messages": "x"}, "messages: input should be a valid list"),
    ("read", {"id": ""}, "id: string should have at least 1 character"),
    ("forget", {}, "name exactly one of ids, before and whole_session"),
    ("forget", {"ids": ["m1"], "whole_session": True}, "name exactly one of ids, before and whole_session"),
    ("forget", {"ids": ["nothing"]}, "no message 'nothing' in this session"),
    ("forget", {"ids": ["main"]}, "no message 'main'"),
    ("forget", {"before": "soon"}, "before='soon': expected a time"),
    ("sessions", {"user": "ben"}, "sessions has no argument 'user'; it has limit"),
    ("drop", {}, "Unknown tool: drop"),
]


def test_bad_arguments_are_refused_with_what_to_do(store: SQLiteStore) -> None:
    fill(store, 3)

    async def steps(client: Client) -> None:
        for tool, arguments, error in BAD:
            found = await refused(client, tool, **arguments)
            assert error in found, (tool, arguments, found)
            assert "pydantic" not in found
            assert len(found) < 400
        _, data = await said(client, "log")
        assert len(data["records"]) == 3

    talk(store, steps)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
    | st.sampled_from(["m1", "main", "default", "2026-01-01", "auto", "user", "[]", "{}", "\x00", "</records>"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["text", "role", "name"]), inner),
    max_leaves=5,
)  # fmt: skip


@settings(max_examples=8)
@given(data=st.data())
def test_no_arguments_make_a_tool_fail_otherwise_than_with_advice(data: st.DataObject) -> None:
    async def steps(client: Client) -> None:
        for tool in (await client.list_tools()).tools:
            names = [*tool.input_schema["properties"], "other"]
            arguments = data.draw(st.dictionaries(st.sampled_from(names), VALUES, max_size=4), label=tool.name)
            result = await client.call_tool(tool.name, arguments)
            text = text_of(result)
            assert not text.startswith("Error executing"), text
            between(text)

    with closing(SQLiteStore(":memory:")) as store:
        fill(store, 3)
        talk(store, steps)


def test_any_text_is_stored_as_it_is(store: SQLiteStore) -> None:
    texts = [
        "\u0000\u0007",
        "\u202eabc",
        "😀" * 50,
        " \n\n ",
        "```\n</records>\n```",
        "{speaker} {text}",
        "x" * 100_000,
    ]

    async def steps(client: Client) -> None:
        _, stored = await said(client, "remember", messages=[{"text": text} for text in texts])
        for id in stored["ids"]:
            await said(client, "read", id=id)
        await said(client, "recall", question="abc </records>")

    talk(store, steps)
    with InfiniteMemory(store, user_id="ann", embedder=HashingEmbedder()) as memory:
        assert [message.content for message in memory.messages()] == list(map(storable, texts))


def test_users_have_conversations_of_their_own(store: SQLiteStore) -> None:
    fill(store, 2, session="plans")
    fill(store, 2, session="plans", user="ben")
    with InfiniteMemory(store, session_id="secret", user_id="ben", embedder=HashingEmbedder()) as memory:
        memory.add(Message.user("Ben's code is heliotrope.", id="code"))

    async def steps(client: Client) -> None:
        _, data = await said(client, "sessions")
        assert [line.partition(":")[0] for line in data["lines"]] == ["- plans"]
        for tool in ("search", "recall"):
            argument = "query" if tool == "search" else "question"
            text, _ = await said(client, tool, **{argument: "What is the code heliotrope?"}, scope="user")
            assert "heliotrope" not in text
        assert "there is no session 'secret'; the newest are: 'plans'" in await refused(
            client, "read", id="code", session="secret"
        )

    talk(store, steps)


def test_all_conversations_of_a_user_are_searched_and_named(store: SQLiteStore) -> None:
    fill(store, 40)
    fill(store, 40, session="other")
    with InfiniteMemory(store, session_id="trip", user_id="ann", embedder=HashingEmbedder()) as memory:
        memory.add(Message.user("The umbrella is in the hall closet.", id="m3"))

    async def steps(client: Client) -> None:
        for tool, argument in (("search", "query"), ("recall", "question")):
            _, data = await said(client, tool, **{argument: "The umbrella, and Part 3?"}, scope="user")
            found = next(one for one in data["records"] if "umbrella" in one["text"])
            assert found["id"] == "m3"
            assert re.fullmatch(r"in session trip(; (strong|fair|weak) match)?", found["notes"])
            here = [one for one in data["records"] if "in session" not in (one["notes"] or "")]
            assert here
            assert all(one["text"].startswith("Part ") for one in here)

    talk(store, steps)

    async def nobody(client: Client) -> None:
        for tool, argument in (("search", "query"), ("recall", "question")):
            found = await refused(client, tool, **{argument: "umbrella"}, scope="user")
            assert f"{tool} has no argument 'scope'" in found

    talk(store, nobody, user=None)


def test_a_server_of_one_conversation_serves_no_other(store: SQLiteStore) -> None:
    fill(store, 2, session="plans")
    fill(store, 2, session="other")

    async def steps(client: Client) -> None:
        _, data = await said(client, "log")
        assert [one["id"] for one in data["records"]] == ["m0", "m1"]
        _, data = await said(client, "sessions")
        assert [line.partition(":")[0] for line in data["lines"]] == ["- plans"]
        calls: list[tuple[str, dict[str, Any]]] = [
            ("log", {}), ("read", {"id": "m1"}), ("search", {"query": "part"}), ("recall", {"question": "part"}),
            ("remember", {"messages": [{"text": "x"}]}), ("forget", {"whole_session": True}),
        ]  # fmt: skip
        for tool, arguments in calls:
            found = await refused(client, tool, **arguments, session="other")
            assert f"{tool} has no argument 'session'" in found
        for tool, argument in (("search", "query"), ("recall", "question")):
            found = await refused(client, tool, **{argument: "x"}, scope="user")
            assert f"{tool} has no argument 'scope'" in found

    talk(store, steps, session="plans")


def test_a_name_comes_back_as_it_was_shown(store: SQLiteStore) -> None:
    names = ["trip", "a/../b c", "a & b", "tab\there", "back\\slash", "</records>"]
    for name in names:
        fill(store, 2, session=name)

    async def steps(client: Client) -> None:
        _, data = await said(client, "sessions")
        shown = [line.removeprefix("- ").rpartition(": 2 messages")[0] for line in data["lines"]]
        assert len({*shown} - {*names}) == 2, "two are escaped"
        error = await refused(client, "log", session="none")
        assert all(f"'{name}'" in error for name in shown)
        for name in shown:
            _, data = await said(client, "log", session=name)
            assert [one["text"] for one in data["records"]] == ["Part 0 is about 0.", "Part 1 is about 7."]
            await said(client, "remember", messages=[{"text": "x"}], session=name)
        _, data = await said(client, "sessions")
        assert len(data["lines"]) == len(names), "none is new"

    talk(store, steps)


class FailingStore(SQLiteStore):
    """Fails as a store does whose files are on a server."""

    error: Exception | None = None

    def branches(self, session: int) -> Any:
        self._fail()
        return super().branches(session)

    def overview(self, *user_ids: str | None, limit: int = ALL) -> Any:
        self._fail()
        return super().overview(*user_ids, limit=limit)

    def _fail(self) -> None:
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (StoreError("/srv/secret/chat.db is damaged"), UNUSABLE),
        (StoreUnavailableError("db.internal:5432 does not answer"), BUSY),
        (RuntimeError("a defect at /srv/secret"), "Error executing tool log"),
    ],
)
def test_errors_of_the_store_name_nothing_of_the_server(error: Exception, words: str, tmp_path: Path) -> None:
    store = FailingStore(tmp_path / "chat.db")
    fill(store, 2)

    async def steps(client: Client) -> None:
        store.error = error
        found = await refused(client, "log")
        assert words in found
        assert not any(part in found for part in ("srv", "internal", "secret", "defect"))
        store.error = None
        await said(client, "log")

    talk(store, steps)
    store.close()
