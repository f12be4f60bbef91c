"""Whole histories that are sent again: what is read and matched grows with what is new."""

from array import array
from typing import Any

import pytest

from shared_core import InfiniteMemory, Message, SessionPool
from shared_core.doors.openai_proxy.chat_request import read_chat_request
from shared_core.doors.openai_proxy.prompts import Prompted, Prompts
from shared_core.doors.openai_proxy.seen_histories import Seen, SeenHistories, digests_of
from shared_core.history import forms, line, normal_form
from shared_core.testing import HashingEmbedder
from tests.support.histories import CountingStore

Said = list[dict[str, Any]]


def asked(prompts: Prompts, said: Said, session: str | None) -> tuple[Prompted, int]:
    """Send a history; return the prompt, and how many of its messages were read."""
    request = prompts.read(read_chat_request({"messages": said}), user=None, session=session, shared=False)
    return prompts.prompt(request, user=None, session=session, report=False), len(request.messages)


def answered(prompts: Prompts, prompted: Prompted, said: Said) -> None:
    prompts.keep(prompted, [Message.assistant(f"Answer {len(said)}. ")])
    said.append({"role": "assistant", "content": f"Answer {len(said)}."})


@pytest.mark.parametrize("session", [None, "talk"])
def test_what_is_read_grows_with_what_is_new(monkeypatch: pytest.MonkeyPatch, session: str | None) -> None:
    normalized, rows = [0], list[int]()
    original = normal_form.normal_form

    def counted(message: Message) -> Any:
        normalized[0] += 1
        return original(message)

    for module in (normal_form, line, forms):
        if hasattr(module, "normal_form"):
            monkeypatch.setattr(module, "normal_form", counted)
    store = CountingStore(":memory:")
    said: Said = [{"role": "system", "content": "It is Monday."}]
    with SessionPool(store, max_tokens=600, embedder=HashingEmbedder()) as pool:
        prompts = Prompts(pool)
        for turn in range(200):
            said[0] = {"role": "system", "content": f"It is day {turn}."}  # as many programs say
            said.append({"role": "user", "content": f"Question {turn}?"})
            store.reset()
            normalized[0] = 0
            prompted, read = asked(prompts, said, session)
            assert turn < 3 or read == 3, "the system prompt, the answer and the question"
            answered(prompts, prompted, said)
            if turn > 20:
                rows.append(sum(store.rows.values()))
                assert normalized[0] <= 140
        assert max(rows[-20:]) <= max(rows[:20]) + 8
        with InfiniteMemory(store, session_id=store.overview(None)[0].session_id) as memory:
            assert [len(memory.branches()), memory.stats()["turns"]] == [1, 200]


def test_what_was_forgotten_since_is_not_known() -> None:
    with SessionPool(None, embedder=HashingEmbedder()) as pool:
        prompts, said = Prompts(pool), Said()
        for turn in range(3):
            said.append({"role": "user", "content": f"Question {turn}?"})
            answered(prompts, asked(prompts, said, "talk")[0], said)
        with pool.use("talk") as memory:
            memory.forget(ids=[memory.messages()[2].id or ""])
        said.append({"role": "user", "content": "Question 3?"})
        prompted, read = asked(prompts, said, "talk")
        assert read == len(said)
        assert "Question 1?" not in [one["content"] for one in prompted.messages or ()]
        with pool.use("talk") as memory:
            memory.forget(session=True)
        answered(prompts, prompted, said)
        said.append({"role": "user", "content": "Question 4?"})
        prompted, _ = asked(prompts, said, "talk")
        assert [one["content"] for one in prompted.messages or ()] == ["Answer 7.", "Question 4?"]


def test_the_newest_histories_are_kept_of_each_user() -> None:
    kept, digests = SeenHistories(most=5), digests_of([{"a": 1}, {"a": 2}, {"a": 3}])
    assert digests == digests_of([{"a": 1}, {"a": 2}, {"a": 3}])
    assert len({*digests, *digests_of([{"a": 2}])}) == 4
    seen = [Seen(f"s{n}", (1, 0), ("x",) * 3, array("I", [1, 2, 3])) for n in range(3)]
    kept.note("ann", digests[0], seen[0])
    kept.note("ann", digests[1], seen[1])
    assert kept.longest("ann", None, digests) == seen[1]
    assert kept.longest("ann", "s0", digests) is None, "it did not fit"
    assert kept.longest("ben", None, digests) is None
    kept.note("ann", digests[1], seen[2])
    assert kept.longest("ann", "s2", digests) == seen[2]
    nested: Any = []
    for _ in range(5_000):
        nested = [nested]
    assert digests_of([nested]) == []
