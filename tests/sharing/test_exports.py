"""What people have from ChatGPT, Claude and Gemini: each chat becomes a session, with its branches, and grows later."""

import json
from collections.abc import Iterator
from contextlib import closing
from copy import deepcopy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_core import InfiniteMemory, Message, UnknownReferenceError, import_sessions
from shared_core.errors import AmbiguousReferenceError, InfiniteMemoryError, InputFileError
from shared_core.messages import ToolCall
from shared_core.queries import After
from shared_core.records import Draft
from shared_core.sharing.foreign import import_conversations
from shared_core.sharing.importer import ImportResult, Job, Target
from shared_core.sharing.readers import Entry, Foreign
from shared_core.sharing.readers.chatgpt import read_chatgpt
from shared_core.sharing.readers.conversation import Conversation
from shared_core.sharing.readers.gemini import text_of_html
from shared_core.store import Store
from shared_core.stores import SQLiteStore
from tests.support.histories import texts
from tests.support.strategies import storable_texts

DATA = Path(__file__).parent / "data"
SAMPLES = {path.stem: json.loads(path.read_text()) for path in sorted(DATA.glob("*.json"))}


@pytest.fixture
def store() -> Iterator[Store]:
    with closing(SQLiteStore(":memory:")) as store:
        yield store


def write(folder: Path, data: Any, name: str = "export.json") -> Path:
    path = folder / name
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def said(store: Store, session: str, branch: str = "main") -> list[Message]:
    with InfiniteMemory(store, session_id=session) as memory:
        memory.checkout(branch)
        return list(memory.messages())


def test_chats_of_chatgpt(store: Store) -> None:
    first, second = import_sessions(store, DATA / "chatgpt.json")
    assert (first.format, first.session_id, first.title, first.new) == ("chatgpt", "c1", "Ferries", 4)
    assert (second.session_id, second.title, second.new, second.left_out) == ("c2", "Hello", 1, ())
    assert Conversation("", "", (), left_out={"step of it": 2}).left_out_words == ("2 steps of it",)
    assert first.left_out == ("1 image", "1 attachment without text", "1 step of reasoning")
    about, question, answer = said(store, "c1")
    assert (about.role, about.content) == ("system", "Lives in Split.\n\nBe brief.")
    assert question.content == "Which ferry is this?"
    assert question.payload is not None
    assert question.payload.data["content"]["parts"][0]["asset_pointer"] == "file-service://file-1"
    assert (answer.content, answer.turn_id) == ("The one at 07:45.", "q1")
    assert texts(said(store, "c1", "version-a1"))[-1] == "The early one."


def test_chats_of_claude(store: Store) -> None:
    chat, old, empty = import_sessions(store, DATA / "claude.json")
    assert (chat.format, chat.title, chat.new) == ("claude", "Ferries to Brac", 6)
    assert (old.new, old.title, empty.new, empty.title) == (2, "", 0, "Never begun")
    assert chat.left_out == ("1 attachment without text", "1 file")
    assert chat.branches == {"main": "main", "version-m2": "version-m2"}
    assert [key.session_id for key in store.sessions()] == [chat.session_id, old.session_id]
    question, other, thanks = said(store, chat.session_id)
    assert question.content == "Which ferry is first?\n[attachment plan.txt]\nSplit, 07:45"
    assert question.created_at == datetime(2025, 3, 1, 10, 0, 0, 123456, tzinfo=UTC)
    assert question.payload is not None
    kinds = [(one["type"], one.get("files")) for one in question.payload.data["content"]]
    assert kinds == [("attachment", None), ("files", [{"file_name": "harbour.png"}])]
    assert (other.content, thanks.content, thanks.turn_id) == ("The early one.", "Thanks", "m4")
    _, call, result, answer = said(store, chat.session_id, "version-m2")
    assert (call.id, call.content) == ("m2", "Let me look.")
    assert call.tool_calls == (ToolCall(id="toolu_1", name="search", arguments='{"query": "ferry"}'),)
    assert call.payload is not None
    thought, text, use, *_ = SAMPLES["claude"][0]["chat_messages"][1]["content"]
    assert call.payload.data == {"content": [thought, text, {key: use[key] for key in ("type", "id", "name", "input")}]}
    assert (result.role, result.content, result.tool_call_id, result.id) == ("tool", "07:45", "toolu_1", "m2#2")
    assert result.payload is not None
    assert result.payload.data["content"][1] == {"type": "image", "file_uuid": "f1"}
    assert (answer.role, answer.content, answer.id, answer.turn_id) == ("assistant", "The one at 07:45.", "m2#3", "m1")
    assert texts(said(store, old.session_id)) == ["An old export", "has no blocks."]


def test_calls_and_results_without_ids_belong_together(store: Store, tmp_path: Path) -> None:
    blocks: list[dict[str, Any]] = [
        {"type": "tool_use", "id": None, "name": name, "input": {}}
        if name
        else {"type": "tool_result", "content": None}
        for name in ("one", "", "two", "")
    ]
    chat = [{"uuid": "a", "sender": "human", "text": "hi"}, {"uuid": "b", "sender": "assistant", "content": blocks}]
    import_sessions(store, write(tmp_path, [{"uuid": "c", "chat_messages": chat}]))
    _, *rest = said(store, "c")
    assert [(call.id, call.name) for one in rest for call in one.tool_calls] == [("b#1", "one"), ("b#3", "two")]
    assert [one.tool_call_id for one in rest if one.role == "tool"] == ["b#1", "b#3"]


def test_a_parent_may_come_later_in_the_file_of_claude(store: Store, tmp_path: Path) -> None:
    above = {"b": "a", "d": "c", "c": "b", "a": "0000", "e": "b"}
    chat = [{"uuid": id_, "sender": "human", "text": id_, "parent_message_uuid": up} for id_, up in above.items()]
    (result,) = import_sessions(store, write(tmp_path, [{"uuid": "c", "chat_messages": chat}]))
    assert result.branches == {"main": "main", "version-c": "version-c"}
    assert [texts(said(store, "c", name)) for name in result.branches] == [["a", "b", "e"], ["a", "b", "c", "d"]]
    chat[3]["parent_message_uuid"] = "d"
    with pytest.raises(InputFileError, match="'b'"):
        import_sessions(store, write(tmp_path, [{"uuid": "c", "chat_messages": chat}]))


def test_activity_of_gemini(store: Store) -> None:
    morning, noon = import_sessions(store, DATA / "gemini.json")
    assert (morning.session_id, morning.title, morning.new) == ("gemini-20250601T080000Z", "Good morning", 1)
    assert (noon.session_id, noon.title, noon.new) == ("gemini-20250601T120000Z", "Which ferry is first?", 4)
    assert (noon.format, noon.left_out) == ("gemini", ("2 files",))
    question, answer, more, list_ = said(store, noon.session_id)
    assert texts([question, answer]) == ["Which ferry is first?", "The one at 07:45 & no other,\nif a < b."]
    assert texts([more, list_]) == ["And on Sunday?", "On Sunday:\n\n- 09:00\n- 17:30"]
    assert question.created_at == answer.created_at == datetime(2025, 6, 1, 12, 0, 0, 500000, tzinfo=UTC)
    assert more.payload is not None
    assert more.payload.data == {"imageFile": "harbour.png"}


def test_the_words_of_a_page() -> None:
    for page, expected in (
        ("<h2>A</h2><pre><code>x &lt; y\n  z</code></pre>", "A\nx < y\n  z"),
        ("<table><tr><th>a</th><td>b</td></tr></table>", "a  b"),
        ("1 < 2 and <i>3</i> > 2", "1 < 2 and 3 > 2"),
        ("<" * 200_000, "<" * 200_000),
        ("<p" * 100_000, "<p" * 100_000),
    ):
        assert text_of_html(page) == expected, page[:60]


def grown(name: str) -> Any:
    """A newer export: the sample with one more question at the end of its first chat, and a chat more."""
    data = deepcopy(SAMPLES[name])
    if name == "chatgpt":
        more = {
            "author": {"role": "user"},
            "create_time": 1714560020,
            "content": {"content_type": "text", "parts": ["so"]},
        }
        data[0]["mapping"]["q9"] = {"id": "q9", "parent": "b2", "message": more}
        data[0]["current_node"] = "q9"
        return [*data, data[1] | {"conversation_id": "c3"}]
    if name == "claude":
        more = {"uuid": "m9", "sender": "human", "text": "so", "parent_message_uuid": "m4"}
        data[0]["chat_messages"].append(more)
        return [*data, data[1] | {"uuid": "c3"}]
    prompt = {"header": "Gemini Apps", "title": "Prompted so", "time": "2025-06-01T08:01:00Z"}
    return [prompt | {"title": "Prompted new", "time": "2025-06-02T08:01:00Z"}, prompt, *data]


@pytest.mark.parametrize("name", ["chatgpt", "claude", "gemini"])
def test_a_newer_export_adds_what_is_new(store: Store, tmp_path: Path, name: str) -> None:
    before = import_sessions(store, DATA / f"{name}.json")
    first = before[0].session_id
    path = write(tmp_path, grown(name))
    results = import_sessions(store, path)
    assert [one.new for one in results] == [1, *[0] * (len(before) - 1), results[-1].new]
    assert results[-1].new == (2 if name == "claude" else 1)
    assert [one.known for one in results[:-1]] == [one.new for one in before]
    assert not any(one.remapped for one in results)
    assert texts(said(store, first))[-1] == "so"
    assert not any(one.new for one in import_sessions(store, path))


def test_versions_keep_their_branches_in_newer_exports(store: Store, tmp_path: Path) -> None:
    nodes = ["q1", "q1 a1", "q1 a2", "a1 q2", "q2 b1", "q2 b2", "a2 q3", "b1 q4", "q1 a3"]
    mapping: dict[str, Any] = {}

    def export(count: int, shown: str) -> ImportResult:
        for when, (*above, id_) in enumerate(map(str.split, nodes[:count])):
            said = {"author": {"role": "user" if id_.startswith("q") else "assistant"}, "content": {"parts": [id_]}}
            mapping[id_] = {"parent": above[0] if above else None, "message": said | {"create_time": when}}
        chat = {"conversation_id": "c", "mapping": mapping, "current_node": shown}
        (result,) = import_sessions(store, write(tmp_path, [chat]))
        return result

    def ends() -> dict[str, str]:
        with InfiniteMemory(store, session_id="c") as memory:
            return {one.name: said(store, "c", one.name)[-1].content for one in memory.branches()}

    assert list(export(3, "a1").branches) == ["main", "version-a2"]
    assert list(export(6, "b1").branches) == ["main", "version-a2", "version-b2"]
    assert ends() == {"main": "b1", "version-a2": "a2", "version-b2": "b2"}
    # Another version is shown, and the first one has grown.
    found = export(7, "b2").branches
    assert found == {"main": "imported/main", "version-b1": "version-b1", "version-a2": "version-a2"}
    assert ends() == {"main": "b1", "version-a2": "q3", "version-b2": "b2", "imported/main": "b2", "version-b1": "b1"}
    found = export(9, "q4").branches
    assert list(found) == list(found.values()) == ["main", "version-b2", "version-a2", "version-a3"]
    assert (ends()["main"], ends()["version-a3"], len(ends())) == ("q4", "a3", 6)


def test_one_chat_is_chosen_by_its_id_or_title(store: Store, tmp_path: Path) -> None:
    path = write(tmp_path, SAMPLES["chatgpt"])
    assert [one.session_id for one in import_sessions(store, path, sessions=["Hello"])] == ["c2"]
    with InfiniteMemory(store, session_id="mine") as memory:
        assert memory.import_file(path, session="Ferries").new == 4
        with pytest.raises(ValueError, match=r"'c1'.*'c2'"):
            memory.import_file(path)
        with pytest.raises(UnknownReferenceError, match=r"'x'.*'c1'.*'c2'") as caught:
            memory.import_file(path, session="x")
        assert caught.value.candidates == ("c1", "c2")
    with pytest.raises(InputFileError, match="same id"):
        import_sessions(store, write(tmp_path, SAMPLES["chatgpt"][:1] * 2))
    alike = write(tmp_path, [SAMPLES["chatgpt"][0], SAMPLES["chatgpt"][1] | {"title": "Ferries"}])
    with pytest.raises(AmbiguousReferenceError, match=r"'Ferries'.*'c1'.*'c2'"):
        import_sessions(store, alike, sessions=["Ferries"])


def test_an_invalid_chat_stops_the_import_or_is_skipped(store: Store, tmp_path: Path) -> None:
    data = deepcopy(SAMPLES["claude"])
    data[1]["chat_messages"][1]["sender"] = "nobody"
    path = write(tmp_path, data)
    with pytest.raises(InputFileError, match="'nobody'"):
        import_sessions(store, path)
    assert store.sessions() == []
    good, bad, empty = import_sessions(store, path, skip_invalid=True)
    assert (good.new, good.error, empty.error) == (6, None, None)
    assert bad.error is not None
    assert bad.error.endswith("message 2: unknown role 'nobody'; expected one of system, developer, user, human, "
                              "assistant, ai, agent, model, bot, chatbot, tool, function")  # fmt: skip
    assert len(store.sessions()) == 1


CLAUDE_PARTS: list[tuple[Any, str]] = [
    ({"chat_messages": 3}, "conversation 1: chat_messages is 3; expected a list"),
    ({"chat_messages": [3]}, 'conversation 1: message 1: 3 is not a message; expected an object with "uuid"'),
    ({"chat_messages": [{"uuid": "a", "sender": "human", "text": "a"}] * 2}, "two messages have the uuid 'a'"),
    ({"chat_messages": [{"uuid": "a", "sender": "human", "files": 3}]}, "or files 3 are invalid; expected lists"),
    ({"chat_messages": [{"uuid": "a", "sender": "human", "content": [{"type": []}]}]}, 'expected a block with "type"'),
    ({"chat_messages": [], "created_at": "soon"}, "'soon' is not a time; expected ISO 8601 text"),
    ({"chat_messages": [], "created_at": True}, "True is not a time"),
]


GEMINI_PARTS: list[tuple[Any, str]] = [
    ({"title": 3}, "record 1 has the title 3; expected text"),
    ({"safeHtmlItem": ["a"]}, "record 1 has safeHtmlItem ['a']; expected a list of objects"),
]


def test_what_is_wrong_in_a_chat_is_named(store: Store, tmp_path: Path) -> None:
    node = {"message": {"author": {"role": "user"}, "content": "a", "create_time": []}}
    rows: list[tuple[Any, str]] = [
        *(({"uuid": "c"} | part, expected) for part, expected in CLAUDE_PARTS),
        *(([SAMPLES["gemini"][0] | part], expected) for part, expected in GEMINI_PARTS),
        ([{"mapping": {"x": node}}], "[] is not"),
    ]
    for data, expected in rows:
        path = write(tmp_path, data)
        with pytest.raises(InputFileError) as caught:
            import_sessions(store, path)
        assert expected in str(caught.value)
        assert str(caught.value).startswith(f"'{path}', ")


def test_contents_of_nodes_have_many_forms(store: Store, tmp_path: Path) -> None:
    contents = ["said", {"content_type": "tether_quote", "text": "quoted"}, {"content_type": "x", "data": 1}, 7, None]
    audio = [{"content_type": "real_time_user_audio_video_asset_pointer"}, {"content_type": "audio_asset_pointer"}]
    contents.append({"content_type": "multimodal_text", "parts": audio})
    mapping = {
        f"n{number}": {
            "message": {"author": {"role": "user"}, "content": content},
            "parent": f"n{number - 1}" if number else None,
        }
        for number, content in enumerate(contents)
    }
    (result,) = import_sessions(store, write(tmp_path, {"id": "c", "mapping": mapping}))
    assert (result.session_id, result.left_out) == ("c", ("1 recording",))
    assert texts(said(store, "c")) == ["said", "quoted", "", "", ""]


def test_an_import_that_is_interrupted_stores_nothing(tmp_path: Path, store: Store) -> None:
    chat = SAMPLES["chatgpt"][0]
    path = write(tmp_path, [chat | {"conversation_id": f"c{number}"} for number in range(5)])

    def stop(count: int, total: int) -> None:
        assert total == 20
        if count > 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_sessions(store, path, progress=stop)
    assert store.sessions() == []
    assert [one.new for one in import_sessions(store, path)] == [4] * 5


NODES = st.tuples(
    st.integers(0, 30), st.sampled_from(["user", "assistant", "system", "tool"]), st.sampled_from(["", "a"])
)


@given(st.lists(NODES, min_size=1, max_size=12), st.integers(0, 11))
def test_a_second_import_changes_nothing(nodes: list[tuple[int, str, str]], current: int) -> None:
    mapping = {}
    for number, (parent, role, text) in enumerate(nodes):
        message = {"author": {"role": role}, "content": {"parts": [text]}, "create_time": number % 4}
        mapping[f"n{number}"] = {"message": message, "parent": f"n{parent % number}" if number and parent else None}
    conversation = read_chatgpt({"mapping": mapping, "current_node": f"n{current}"}, "c")
    held = []
    for again in (False, True):
        with closing(SQLiteStore(":memory:")) as store:
            session = store.create_session(None, "c")
            job, source = (
                Job(store, lambda id_, user: Target(user, id_), Draft),
                Foreign("x", "chatgpt", [Entry("c", "", lambda: conversation)]),
            )
            ((result, _),) = import_conversations(job, source, source.entries)
            if again:
                (known,) = import_conversations(job, source, source.entries)
                assert (known.result.new, known.result.branches) == (0, result.branches)
            count = store.stats(session)["segments"]
            tree = [store.segment(session, number) for number in range(count)]
            held.append([result, tree, store.find(session, After(0, 99)), store.branches(session)])
    assert held[0] == held[1]


def test_a_file_in_no_known_format_says_what_it_looks_like(tmp_path: Path, store: Store) -> None:
    for data, expected in (
        ({"a": 1, "b": 2}, "holds an object with the fields 'a', 'b'; expected ChatGPT's conversations.json or zip, "),
        (
            [{"from": "human", "value": "hi"}],
            "holds a list of 1, the first of which is an object with the fields 'from'",
        ),
        ({}, "holds an empty object"),
        ("hi", "holds 'hi'"),
        (
            [{"title": "Watched a film", "time": "2025-06-01T11:00:00Z", "header": "YouTube"}],
            "'title', 'time', 'header'",
        ),
    ):
        with pytest.raises(InputFileError) as caught:
            import_sessions(store, write(tmp_path, data))
        assert expected in str(caught.value)
        assert str(caught.value).endswith('messages in the OpenAI format: [{"role": "user", "content": "…"}]')


def parts(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values inside a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield (*path, key)
        yield from parts(one, (*path, key))


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | storable_texts(max_size=5)
    | st.sampled_from(["user", "tool", "text", "tool_use", "9999-12-31T23:59:59-23:00", "0001-01-01", "\ud800", "m1"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["type", "id", "text"]), inner),
    max_leaves=4,
)  # fmt: skip
PATHS = {name: list(parts(data)) for name, data in SAMPLES.items()}


@given(data=st.data(), name=st.sampled_from(sorted(SAMPLES)))
def test_a_changed_file_is_imported_or_refused_with_a_named_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, name: str
) -> None:
    value = deepcopy(SAMPLES[name])
    for path in data.draw(st.lists(st.sampled_from(PATHS[name]), min_size=1, max_size=3)):
        inner = value
        try:
            for key in path[:-1]:
                inner = inner[key]
            inner[path[-1]] = data.draw(JUNK)
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change took this part away
    file = write(tmp_path_factory.getbasetemp(), value, "changed.json")
    with closing(SQLiteStore(":memory:")) as store:
        try:
            results = import_sessions(store, file)
        except (InfiniteMemoryError, ValueError):
            assert store.sessions() == []
            return
        held = {key.session_id: store.stats(key.key)["messages"] for key in store.sessions()}
        assert held == {one.session_id: one.new for one in results if one.session_id in held}
        assert not any(one.new for one in results if one.session_id not in held)
        assert not any(one.new for one in import_sessions(store, file))
