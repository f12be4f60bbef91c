"""Pickles and JSON of a buffer lead back to the memory in use or to its file; a deep copy goes on by itself."""

import copy
import gc
import json
import logging
import pickle
from contextlib import ExitStack
from itertools import product
from pathlib import Path

import pytest
from llama_index.core.memory import SimpleComposableMemory
from workflows.context.serializers import JsonSerializer
from workflows.context.state_store import DictState, copy_state_for_edit

from llama_index_infinite_memory import InfiniteChatMemoryBuffer
from tests.interop.test_packages import in_new_process
from tests.llama_index.sample_messages import EVERY, PNG, WITH_A_STREAM, part
from tests.llama_index.test_buffer import TALK, assistant, ours, texts, user

Buffer = InfiniteChatMemoryBuffer


def handles(memory: Buffer) -> list[Buffer]:
    """Handles made in every way."""
    return [
        Buffer.from_dict(memory.to_dict()),
        Buffer.from_dict(json.loads(json.dumps(memory.to_dict()))),
        Buffer.from_json(memory.to_json()),
        Buffer.from_json(memory.to_json()),
        Buffer.from_dict(memory.model_dump()),
        pickle.loads(pickle.dumps(memory)),
        copy.copy(memory),
        memory.model_copy(),
        JsonSerializer().deserialize(JsonSerializer().serialize(memory)),
    ]


@pytest.mark.parametrize("place", ["memory", "file"])
def test_every_handle_is_of_the_memory_in_use(place: str, tmp_path: Path) -> None:
    store = tmp_path / "a.db" if place == "file" else None
    with ours(TALK[:2], store=store, token_limit=70, user_id="u", tokenizer_fn=str.split) as memory:
        for count, other in enumerate(handles(memory), start=3):
            assert type(other) is Buffer
            assert other == memory
            other.put(user(f"from {count}"))
            assert len(memory.get_all()) == count
            assert (other.token_limit, other.user_id, other.tokenizer_fn) == (70, "u", str.split)
        assert other.get_all() == memory.get_all()
        other.token_limit = 10
        assert memory.token_limit == 70
        assert other != memory


def test_the_live_message_is_shared_by_handles() -> None:
    memory = ours([user("q"), assistant("a"), user("r")])
    part(memory.get()[-1], 0).text = "state and r"
    for other in handles(memory):
        assert other.get()[-1].content == "state and r"


def test_of_a_memory_that_is_gone_a_later_state_is_not_lost() -> None:
    memory = ours(TALK[:2], embed_model=None)
    first = memory.to_dict()
    memory.put_messages(TALK[2:4])
    second = memory.to_dict()
    memory.close()
    del memory
    gc.collect()
    old = Buffer.from_dict(first)
    new = Buffer.from_dict(second)
    assert (old.get_all(), new.get_all()) == (TALK[:2], TALK[:4])
    assert Buffer.from_dict(first).get_all() == TALK[:2]
    assert old != new


def test_what_is_forgotten_is_not_written_out() -> None:
    memory = ours(TALK[:4])
    assert len(memory.to_dict()["messages"]) == 4
    memory.memory.forget(session=True)
    assert memory.to_dict()["messages"] == []
    memory.put_messages(TALK[:2])
    memory.put_messages(TALK[2:8])
    assert [m["content"] for m in memory.to_dict()["messages"]] == texts(TALK[:8])
    memory.memory.fork("other", at=memory.to_dict()["messages"][0]["id"])
    assert len(memory.to_dict()["messages"]) == 1


def test_settings_come_back_as_far_as_they_can_be_written(tmp_path: Path) -> None:
    with ours(TALK, store=tmp_path / "a.db", top_k=0, embed_model="static") as memory:
        chosen = memory.conversation.settings.given
        data = memory.to_dict()
        assert data["settings"]["embed_model"] == "static"
    with Buffer.from_dict(data) as again:
        assert again.conversation.settings.given == chosen
    with Buffer.from_dict(data, top_k=2, strippers=[]) as other:
        assert other.conversation.settings.given == {**chosen, "top_k": 2, "strippers": ()}
    with pytest.raises(ValueError, match="Unexpected kwargs"):
        Buffer.from_dict(data, nothing=1)


IN_A_NEW_PROCESS = """
import json, pickle, sys
from tests.llama_index.sample_messages import EVERY
from llama_index.core.base.llms.types import ChatMessage
from llama_index_infinite_memory import InfiniteChatMemoryBuffer
for path in sys.argv[1:]:
    with open(path, "rb") as file:
        pickled = path.endswith(".pickle")
        memory = pickle.load(file) if pickled else InfiniteChatMemoryBuffer.from_dict(json.load(file))
    with memory:
        assert memory.get_all()[:len(EVERY)] == EVERY, memory.get_all()
        memory.put(ChatMessage(content="from another process"))
        print(memory.token_limit, len(memory.get_all()), memory.tokenizer_fn("a b"))
"""


def test_a_new_process_goes_on(tmp_path: Path) -> None:
    """One process for all of them, because importing LlamaIndex takes seconds."""
    written = {}
    with ExitStack() as opened:
        for place, form in product(["memory", "file"], ["json", "pickle"]):
            store = tmp_path / f"{form}.db" if place == "file" else None
            made = ours(EVERY, store=store, token_limit=9_000, embed_model=None)
            path = tmp_path / f"{place}.{form}"
            path.write_bytes(pickle.dumps(made) if form == "pickle" else made.to_json().encode())
            written[path] = opened.enter_context(made)
        shown = in_new_process(IN_A_NEW_PROCESS, *map(str, written))
        assert shown.splitlines() == [f"9000 {len(EVERY) + 1} [64, 293]"] * 4
        for path, memory in written.items():
            assert len(memory.get_all()) == len(EVERY) + (path.stem == "file")


def test_a_stream_in_a_message_is_written_out() -> None:
    memory = ours([WITH_A_STREAM, assistant("a cat")], embed_model=None)
    data = json.loads(memory.to_json())
    assert part(memory.get()[0], 1).resolve_image().read() == PNG
    memory.close()
    del memory
    gc.collect()
    assert Buffer.from_dict(data).get_all()[1] == assistant("a cat")


def test_data_of_another_memory_is_refused() -> None:
    with pytest.raises(ValueError, match=r"from_defaults\(chat_history="):
        Buffer.from_dict({"token_limit": 50, "chat_history": []})


# Among LlamaIndex's own


def test_it_composes_with_llama_index_s_own(caplog: pytest.LogCaptureFixture) -> None:
    primary, secondary = ours(TALK[:2]), ours([user("my dog is Rex"), assistant("nice")])
    memory = SimpleComposableMemory.from_defaults(primary_memory=primary, secondary_memory_sources=[secondary])
    assert memory.primary_memory is primary
    found = memory.get("who is Rex?")
    assert "my dog is Rex" in str(found[0].content)
    assert texts(found)[1:] == texts(TALK[:2])
    with caplog.at_level(logging.WARNING):
        assert memory.to_dict()["primary_memory"]["session_id"] == "chat_history"
    assert not caplog.records


def test_a_deep_copy_goes_on_by_itself(tmp_path: Path) -> None:
    for store in (None, tmp_path / "a.db"):
        for talk in ([], TALK[:2]):
            with ours(talk, store=store, session_id=f"of {len(talk)}") as memory:
                other, third = copy.deepcopy(memory), memory.model_copy(deep=True)
                for one in (other, third):
                    one.put(user("aside"))
                    assert texts(one.get()) == texts(one.get_all()) == [*texts(talk), "aside"]
                    again = Buffer.from_dict(one.to_dict())
                    again.put(assistant("fine"))
                    assert again == one
                assert memory.get_all() == talk
                memory.put(user("on main"))
                assert (texts(other.get_all())[-1], texts(memory.get_all())[-1]) == ("fine", "on main")
                assert memory.memory.branch == "main"
                other.close()
                third.close()


def test_an_edit_of_an_agent_s_state_goes_on_in_the_memory_in_use() -> None:
    memory = ours(TALK[:2])
    other = copy_state_for_edit(DictState(memory=memory))["memory"]
    other.put(user("more"))
    assert texts(memory.get_all())[-1] == "more"
