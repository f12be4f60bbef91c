"""`evaluate` on a small store: the prompts are those that a memory builds, and the store stays as it is."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shared_core import InfiniteMemory, Message, SQLiteStore
from shared_core.errors import InputFileError, StoreError
from shared_core.evaluation import Evaluation, evaluate
from shared_core.evaluation.result import Answer
from shared_core.testing import HashingEmbedder
from tests.stores.dict_store import DictStore

FILLER = "Nothing of interest happened, and we talked about the weather for a while, as one does. " * 3
WORDS: dict[str, Any] = {"embedder": "words", "max_tokens": 600, "reserve_tokens": 0}
"""A prompt with room for a few messages, without vectors."""


def messages(secret: str = "The code of my locker is 4093.") -> Iterator[Message]:
    said = {3: secret, 30: "We moved the meeting to Porto."}
    for number in range(40):
        text = said.get(number, f"{FILLER} {number}")
        made = Message.assistant if number % 2 else Message.user
        day = f"2026-03-{number // 2 + 1:02d}T10:{number % 2:02d}:00Z"
        yield made(text, id=f"m{number}", created_at=day)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "chat.db"
    with InfiniteMemory(path, **WORDS) as memory:
        memory.add(list(messages()))
    return path


def ask(store: Any, *questions: dict[str, Any], **arguments: Any) -> Evaluation:
    return evaluate(store, list(questions), **{**WORDS, **arguments})


def own(found: Evaluation) -> list[Answer]:
    return found.present.own


LOCKER: dict[str, Any] = {"question": "What is the code of my locker?", "ids": ["m3"], "kind": "codes"}


def test_figures_are_those_of_the_prompt_that_a_memory_builds(store: Path) -> None:
    found = ask(
        store,
        LOCKER,
        LOCKER | {"ids": ["m3", "m5", "m39", "m7"]},
        {"question": "What is the code of my locker?", "text": ["CODE  of my\nlocker is 4093", "4094"], "ids": ["m3"]},
        {"question": "Where is the meeting?", "text": "Porto", "kind": "places"},
    )
    with InfiniteMemory(store, **WORDS) as memory:
        reports = [memory.context(text).report for text in (LOCKER["question"], "Where is the meeting?")]
    assert [one.evidence for one in own(found)] == [1, 0.5, 2 / 3, 1]
    for number, report in enumerate([reports[0]] * 3 + reports[1:]):
        assert own(found)[number].tokens == report.total_tokens <= 600
        assert own(found)[number].recalled == report.totals[report.lines[0].kind.RECALLED] > 0
    answers = found.present.own
    assert list(answers[1].missing) == ["m5", "m7"]
    assert answers[2].missing == {"4094": "is in no part of the prompt"}
    sums = found.present.kinds()
    assert sorted(sums) == ["", "codes", "places"]
    assert (sums["codes"].lines, sums["codes"].evidence, sums["codes"].recalled) == (
        2, (0.75, 0.5, 1), own(found)[0].recalled,
    )  # fmt: skip


def test_an_excerpt_counts_as_its_message_but_not_as_all_of_its_text(tmp_path: Path) -> None:
    with InfiniteMemory(tmp_path / "chat.db", **WORDS) as memory:
        memory.add(list(messages(f"{FILLER * 3} The code of my locker is 4093. {FILLER * 3} The end is near.")))
    found = ask(tmp_path / "chat.db", LOCKER | {"text": ["is 4093", "The end is near."]})
    assert found.present.own[0].missing == {"The end is near.": "is in no part of the prompt"}


@pytest.mark.parametrize(
    ("when", "last"),
    [({"at": "m9"}, "m9"), ({"at": "2026-03-05"}, "m9"), ({"at": "2026-03-05T10:00"}, "m8"), ({}, "m39")],
)
def test_a_question_is_asked_of_what_had_been_said_by_then(store: Path, when: dict[str, str], last: str) -> None:
    with InfiniteMemory(store, **WORDS) as memory:
        memory.checkout(last)
        report = memory.context(LOCKER["question"]).report
    found = ask(store, LOCKER | when)
    assert own(found)[0].tokens == report.total_tokens
    assert own(found)[0].evidence == 1
    with InfiniteMemory(**WORDS) as short:
        short.add([one for one in messages() if int((one.id or "")[1:]) <= int(last[1:])])
        assert short.context(LOCKER["question"]).report.total_tokens == report.total_tokens


def test_questions_without_an_answer_and_small_talk_need_nothing(store: Path) -> None:
    found = ask(
        store, LOCKER, {"question": "Where does the zebra live?", "ids": []}, {"question": "My locker?", "ids": []}
    )
    silence = found.present.silence()
    assert list(silence) == ["questions without an answer", "chit-chat", "general knowledge"]
    assert [one.lines for one in silence.values()] == [2, 20, 20]
    unanswered = [one for one in found.present.answers if one.purpose == "questions without an answer"]
    assert [one.recalled > 0 for one in unanswered] == [False, True]
    first = silence["questions without an answer"]
    assert (first.often, first.recalled) == ((0.5, 0, 1), unanswered[1].recalled / 2)
    nothing = ask(store, {"question": "Where does the zebra live?", "ids": []})
    assert "evidence" not in str(nothing)


def test_several_sessions_are_asked(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    for user, session in ((None, "one"), (None, "two"), ("u", "one")):
        with InfiniteMemory(path, session_id=session, user_id=user, **WORDS) as memory:
            memory.add(list(messages(f"The code of my {session} locker is 4093.")))
    found = ask(
        path,
        LOCKER | {"session": "one"},
        LOCKER | {"session": "two"},
        LOCKER | {"session": "one", "user": "u"},
    )
    assert [(one.place.user, one.place.session) for one in own(found)] == [(None, "one"), (None, "two"), ("u", "one")]
    assert found.present.overall().lines == 3
    assert "of 3 resampled questions, so few that they are rough." in str(found)


def test_settings_are_compared_with_the_present_one(store: Path) -> None:
    embedder = HashingEmbedder()
    found = ask(
        store, LOCKER, {"question": "Where is the meeting?", "ids": ["m30"]},
        tries={"top_k": [0], "embedder": [embedder], "max_tokens": [600]},
    )  # fmt: skip
    names = ["present", "top_k=0", f"embedder={embedder.fingerprint.key}", "max_tokens=600"]
    assert [one.name for one in found.outcomes] == names
    assert [one.overall().evidence for one in found.outcomes] == [(1, 1, 1), (0, 0, 0), (1, 1, 1), (1, 1, 1)]
    assert found.outcomes[2].embedder == embedder.fingerprint.key != found.present.embedder
    assert [found.lead(one).mean for one in found.outcomes] == [0, -1, 0, 0]
    assert repr(found.outcomes[1]) == "Outcome(name='top_k=0')"
    head = "2 questions to 1 session of 40 messages; prompts of at most 600 tokens"
    assert repr(found).startswith(f"<Evaluation: {head}; present, ")


@pytest.mark.parametrize(
    ("tries", "what"),
    [
        ({"recal": ["precise"]}, "recal"),
        ({"recall": ["x"]}, "recall='x'"),
        ({"max_tokens": [10]}, "max_tokens=10"),
        ({"session_id": ["x"]}, "session_id: no setting"),
    ],
)
def test_what_cannot_be_tried(store: Path, tries: Any, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        evaluate(store, [LOCKER], tries=tries)


def test_a_store_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"no store at .*none\.db"):
        evaluate(tmp_path / "none.db", [LOCKER])


def test_json_has_every_figure(store: Path) -> None:
    found = ask(store, LOCKER, {"question": "Where is the zebra?", "ids": []}, tries={"top_k": [0]}).to_dict()
    assert found.keys() == {"questions", "sessions", "budget", "settings"}
    assert (found["questions"], found["budget"]) == (2, 600)
    assert found["sessions"] == [{"session": "default", "user": None, "branch": "main", "messages": 40}]
    setting = found["settings"][0]
    assert setting.keys() == {"name", "embedder", "notes", "all", "kinds", "silence", "lead", "rows"}
    assert setting["all"]["evidence"] == {"mean": 1, "low": 1, "high": 1}
    figures = {"lines", "evidence", "often", "recalled", "tokens", "milliseconds"}
    assert setting["all"].keys() == setting["silence"]["chit-chat"].keys() == figures
    assert found["settings"][1]["lead"] == {"mean": -1, "low": -1, "high": -1}
    rows = [one["rows"] for one in found["settings"]]
    assert [len(one) for one in rows] == [2 + 40] * 2
    said, figures = {"where", "question", "session", "user", "purpose", "kind"}, figures - {"lines", "often"}
    assert rows[0][0].keys() == said | figures | {"missing"}
    assert rows[1][0]["missing"].keys() == {"m3"}
    assert rows[0][0]["evidence"] == 1


def test_evidence_may_be_in_another_session_of_the_user_if_that_is_searched(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    for session in ("old", "new"):
        with InfiniteMemory(path, session_id=session, user_id="u", **WORDS) as memory:
            memory.add(
                [one.replace(id=f"{session}-{one.id}") for one in messages(f"My {session} locker code is 4093.")]
            )
    asked = {"question": "What is my old locker code?", "ids": ["old-m3"], "session": "new", "user": "u"}
    found = ask(path, asked, tries={"scope": ["user"]}, embedder=HashingEmbedder())
    assert [one.own[0].evidence for one in found.outcomes] == [0, 1]
    assert found.present.own[0].missing == {"old-m3": "is not recalled, nor is anything else"}
    with pytest.raises(InputFileError, match=r"'old-m3'.*'new'"):
        ask(path, asked)


def test_the_text_names_what_is_missing_and_what_could_not_be_done(store: Path) -> None:
    class Broken(HashingEmbedder):
        def embed_query(self, text: str) -> Any:
            raise RuntimeError("out of order")

    found = ask(store, *[LOCKER | {"text": f"never said {number}"} for number in range(12)], top_k=0)
    lines = str(found).splitlines()
    assert "Not all of the evidence is in the prompt of 12:" in lines
    assert "question 10: What is the code of my locker?" in lines
    assert "  'm3' is not recalled, nor is anything else; 'never said 9' is in no part of the prompt" in lines
    assert "... and 2 more" in lines
    with pytest.warns(RuntimeWarning):
        broken = ask(store, LOCKER, tries={"embedder": [Broken()]})
    assert len(broken.outcomes[1].notes) == 1
    assert f"! embedder={Broken().fingerprint.key}: {broken.outcomes[1].notes[0]}" in str(broken).splitlines()
    assert "RuntimeError: out of order" in str(broken)


# What is wrong with questions


def test_everything_that_is_not_there_is_named(store: Path) -> None:
    with pytest.raises(InputFileError) as caught:
        ask(
            store,
            LOCKER | {"ids": ["m3", "x1", "x2"]},
            LOCKER | {"at": "later"},
            LOCKER | {"session": "other"},
            LOCKER | {"user": "u"},
        )
    lines = str(caught.value).removeprefix("questions: ").split(";\n")
    assert [line.split(":")[0] for line in lines] == [f"question {number}" for number in (1, 1, 2, 3, 4)]
    assert [one in line for one, line in zip(["'x1'", "'x2'", "at='later'", "'other'", "'u'"], lines, strict=True)]


def test_the_beginning_of_an_id_is_enough_if_no_other_begins_so(tmp_path: Path) -> None:
    with InfiniteMemory(tmp_path / "chat.db", **WORDS) as memory:
        memory.add([Message.user("One.", id="aaaa1111"), Message.user("Two.", id="aaaa2222")])
    found = ask(tmp_path / "chat.db", {"question": "What?", "ids": ["aaaa1"]})
    assert found.present.own[0].question.ids == ("aaaa1111",)
    assert own(found)[0].evidence == 1
    with pytest.raises(InputFileError, match=r"'aaaa'"):
        ask(tmp_path / "chat.db", {"question": "What?", "ids": ["aaaa"]})


def test_the_branch_that_is_asked(store: Path) -> None:
    with InfiniteMemory(store, **WORDS) as memory:
        memory.fork("side", at="m1")
        memory.add(Message.user("The code of my locker is 17.", id="s1"))
    assert own(ask(store, LOCKER | {"ids": ["s1"]}, branch="side"))[0].evidence == 1
    with pytest.raises(InputFileError, match=r"'s1'"):
        ask(store, LOCKER | {"ids": ["s1"]})
    with pytest.raises(InputFileError, match=r"'default'.*'none'"):
        ask(store, LOCKER, branch="none")


def test_a_question_that_does_not_fit_is_named(store: Path) -> None:
    with pytest.raises(ValueError, match=r"^max_tokens=20, question 1: .*55"):
        ask(store, LOCKER | {"question": "word " * 50}, tries={"max_tokens": [20]})


# The store


def test_the_file_is_left_as_it_is(store: Path) -> None:
    before, names = store.read_bytes(), sorted(store.parent.iterdir())
    ask(store, LOCKER, tries={"embedder": [HashingEmbedder()], "recall_unit": ["turn"]})
    assert store.read_bytes() == before
    assert sorted(store.parent.iterdir()) == names


def test_a_file_that_is_in_use_is_left_as_it_is_and_read_as_it_is_now(store: Path) -> None:
    with InfiniteMemory(store, **WORDS) as memory:
        memory.add(Message.user("The code of my other locker is 17.", id="new"))
        wal = store.with_name("chat.db-wal")
        before, log = store.read_bytes(), wal.read_bytes()
        assert log, "the newest message is not in the file yet"
        found = ask(store, LOCKER | {"ids": ["new"]}, tries={"embedder": [HashingEmbedder()]})
        assert own(found)[0].evidence == 1
        assert (store.read_bytes(), wal.read_bytes()) == (before, log)
        assert memory.stats()["embedders"] == []


@pytest.mark.parametrize("kind", [SQLiteStore, DictStore])
def test_a_store_is_copied_with_its_vectors_and_left_as_it_is(kind: Any) -> None:
    embedder = HashingEmbedder()
    opened = SQLiteStore(":memory:") if kind is SQLiteStore else DictStore()
    with InfiniteMemory(opened, embedder=embedder) as memory:
        memory.add(list(messages()))
        memory.index()
        before = memory.stats()
    again = HashingEmbedder()
    found = ask(opened, LOCKER, embedder=again, tries={"recall_unit": ["turn"]})
    assert own(found)[0].evidence == 1
    assert not set(again.documents) & {one.content for one in messages()}, "the vectors came along"
    with InfiniteMemory(opened, embedder=embedder) as memory:
        assert memory.stats() == before


def test_a_file_that_is_no_store_is_refused(tmp_path: Path) -> None:
    for name, content in {"none.db": None, "junk.db": b"junk " * 300}.items():
        if content:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(StoreError, match=name):
            ask(tmp_path / name, LOCKER)
    assert not (tmp_path / "none.db").exists()
