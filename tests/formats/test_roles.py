"""A speaker may be called what any program calls them, wherever a role is taken."""

import pytest

from shared_core import InfiniteMemory, Message

NAMES = {
    "human": "user", "user": "user", "ai": "assistant", "agent": "assistant", "model": "assistant",
    "bot": "assistant", "chatbot": "assistant", "developer": "system", "AI": "assistant", "Human": "user",
}  # fmt: skip


def test_a_role_is_known_by_every_name(subtests: pytest.Subtests) -> None:
    rows: list[tuple[str, str]] = [*NAMES.items()]
    for name, role in rows:
        with subtests.test(name=name, role=role), InfiniteMemory() as memory:
            item = {"role": name, "content": "hi"}
            item_of_responses = {"type": "message", "role": name, "content": [{"type": "input_text", "text": "hi"}]}
            stored = memory.add([item, item_of_responses, Message.model_validate({"role": name, "content": "hi"})])
            assert [message.role for message in stored] == [role] * 3
            # Requests hold the names that OpenAI's APIs know.
            written = "developer" if name == "developer" else role
            assert [one.to_openai()["role"] for one in stored] == [written, role, role]
            assert {one.to_responses()[0]["role"] for one in stored} <= {written, role}
            assert memory.search("hi", role=name) == memory.search("hi", role=role)  # type: ignore[arg-type]


def test_the_result_of_a_function_is_a_tool_s() -> None:
    calls = [{"role": "function", "name": "add", "content": "2"}, {"role": "tool", "tool_call_id": "1", "content": "3"}]
    assert [Message.from_openai(item).role for item in calls] == ["tool", "tool"]
    assert [Message.from_openai(item).to_openai() for item in calls] == calls
    assert Message(role="function", content="2").role == "tool"  # type: ignore[arg-type]


def test_an_unknown_role_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match="'boss'"):
        Message.from_openai({"role": "boss", "content": "x"})
    with pytest.raises(ValueError, match="role='boss'"):
        Message(role="boss")  # type: ignore[arg-type]
