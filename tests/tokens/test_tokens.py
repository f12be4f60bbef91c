"""Token counters: exact, never too low without a table, and available without a network."""

import base64
import importlib.util
import itertools
import json
import os
import string
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiktoken
import tiktoken.load
import tiktoken.registry
from hypothesis import example, given
from hypothesis import strategies as st

from shared_core import InfiniteMemory, tokens
from shared_core.messages import Message, ToolCall
from shared_core.plugins.base import TokenCounter
from shared_core.tokens import (
    TOOL_OVERHEAD,
    CallableCounter,
    ConservativeCounter,
    RememberedCounter,
    TiktokenCounter,
    TokenFallbackWarning,
    as_counter,
    body_tokens,
    conservative,
    message_tokens,
    tools_tokens,
)
from shared_core.tokens import tiktoken as counters

WORST: dict[str, list[str]] = json.loads(
    Path(__file__).with_name("data").joinpath("worst_case_texts.json").read_text(encoding="utf-8")
)
TEXTS = [text for texts in WORST.values() for text in texts]
PROSE = WORST["english prose"][0]


@pytest.fixture(scope="module")
def encodings() -> list[tiktoken.Encoding]:
    """Both encodings as tiktoken itself has them, where their tables are on this machine or can be downloaded."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TokenFallbackWarning)
        found = [counters._encoding(name) for name in ("cl100k_base", "o200k_base")]
    if None in found:
        pytest.skip("no tiktoken tables: neither cached, nor with llama-index-core, nor downloadable")
    return [encoding for encoding in found if encoding is not None]


def exact(encodings: list[tiktoken.Encoding], text: str) -> int:
    return max(len(encoding.encode_ordinary(text)) for encoding in encodings)


# ------------------------------------------------------------------------------------------------ the seeds' counter


@pytest.mark.parametrize(("text", "count"), [("", 0), ("abc", 0), ("abcd", 1), ("x" * 8_096, 2_024)])
def test_characters_count_as_the_seeds_do(text: str, count: int) -> None:
    assert as_counter("characters/4")(text) == count


# ---------------------------------------------------------------------------------------------------------- tiktoken


@pytest.mark.parametrize(
    ("given_name", "name"),
    [
        ("o200k_base", "tiktoken/o200k_base"),
        ("gpt-4o", "tiktoken/o200k_base"),
        ("gpt-4o-2024-08-06", "tiktoken/o200k_base"),
        ("gpt-4", "tiktoken/cl100k_base"),
        ("text-embedding-3-small", "tiktoken/cl100k_base"),
        ("tiktoken/cl100k_base", "tiktoken/cl100k_base"),
    ],
)
@pytest.mark.usefixtures("encodings")
def test_a_model_goes_by_its_encodings_name(given_name: str, name: str) -> None:
    counter = TiktokenCounter(given_name)
    assert counter.name == name
    assert counter("hello world") == 2


@pytest.mark.usefixtures("encodings")
def test_harmony_shares_the_table_of_o200k() -> None:
    assert TiktokenCounter("o200k_harmony").name == "tiktoken/o200k_harmony"
    assert TiktokenCounter("o200k_harmony")(PROSE) == TiktokenCounter()(PROSE)


@pytest.mark.usefixtures("encodings")
@pytest.mark.parametrize("name", ["cl100k_base", "o200k_base"])
def test_every_text_counts_as_in_tiktoken(name: str) -> None:
    counter, encoding = TiktokenCounter(name), counters._encoding(name)
    assert encoding is not None
    for text in TEXTS:
        assert counter(text) == len(encoding.encode_ordinary(text))


@pytest.mark.usefixtures("encodings")
@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        ("<|endoftext|>", 7),  # one token if it were read as special
        ("\x00", 1),
        ("\ud800", 1),
        ("\N{RIGHT-TO-LEFT OVERRIDE}abc", 2),
    ],
)
def test_odd_texts_count_as_text(text: str, count: int) -> None:
    assert TiktokenCounter()(text) == count


a_megabyte_of_one_thing = pytest.mark.parametrize(
    "text",
    ["\U0001f600" * 250_000, "a" * 1_000_000, " " * 1_000_000, "\t " * 500_000 + "x", "\ud800" * 300_000],
    ids=["emoji", "letter", "spaces", "white space", "surrogates"],
)


class SearchedText(str):
    """A text that counts the searches for a place to cut it."""

    searches = 0

    def rfind(self, *wanted: Any) -> int:
        self.searches += 1
        return super().rfind(*wanted)


@a_megabyte_of_one_thing
def test_the_cost_of_a_long_text_grows_with_its_length(text: str) -> None:
    searched = SearchedText(text)
    blocks = list(counters._blocks(searched))
    assert "".join(blocks) == text
    assert max(map(len, blocks)) <= counters.BLOCK, "an encoding is slower than linear on a long run"
    assert len(blocks) <= 2 * len(text) / counters.BLOCK
    assert searched.searches <= len(text) + len(blocks)


@pytest.mark.parametrize("gap", [" ", "  ", "\n    ", ".\n\n"])
def test_cutting_into_blocks_changes_no_count(encodings: list[tiktoken.Encoding], gap: str) -> None:
    text = gap.join([PROSE, *WORST["source code"], "x" * 30_000, *WORST["chinese"]] * 10)
    blocks = list(counters._blocks(text))
    assert "".join(blocks) == text
    assert len(blocks) > 10
    assert max(map(len, blocks)) <= counters.BLOCK
    hard_cuts = sum(len(block) == counters.BLOCK for block in blocks)
    for encoding in encodings:
        extra = TiktokenCounter(encoding.name)(text) - len(encoding.encode_ordinary(text))
        assert 0 <= extra <= 2 * hard_cuts


# ----------------------------------------------------------------------------------------------------------- offline


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A process that has loaded nothing, with an empty cache folder and without LlamaIndex; returns the folder."""
    monkeypatch.setattr(counters, "_loaded", {})
    monkeypatch.setattr(tiktoken.registry, "ENCODINGS", {})
    monkeypatch.setitem(sys.modules, "llama_index", None)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    return tmp_path


def unreachable(url: str) -> bytes:
    raise ConnectionError(f"cannot reach {url}")


@pytest.mark.parametrize("name", ["o200k_base", "gpt2"])
@pytest.mark.usefixtures("fresh")
def test_without_table_and_network_one_warning_and_the_conservative_counter(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(tiktoken.load, "read_file", unreachable)
    with pytest.warns(TokenFallbackWarning, match=rf"'{name}'.*ConnectionError.*TIKTOKEN_CACHE_DIR") as caught:
        first, second = TiktokenCounter(name), TiktokenCounter(name)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    for counter in (first, second):
        assert counter.name == ConservativeCounter.name
        assert counter(PROSE) == ConservativeCounter()(PROSE)


@pytest.mark.usefixtures("fresh")
def test_a_download_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = threading.Event()

    def hang(url: str) -> bytes:
        answer.wait()
        return unreachable(url)

    monkeypatch.setattr(tiktoken.load, "read_file", hang)
    monkeypatch.setattr(counters, "DOWNLOAD_SECONDS", 0.01)
    with pytest.warns(TokenFallbackWarning, match="TimeoutError"):
        assert TiktokenCounter().name == ConservativeCounter.name
    answer.set()


@pytest.mark.usefixtures("fresh")
def test_an_empty_cache_setting_means_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")
    assert list(counters._table_folders()) == []


@pytest.fixture
def tables(encodings: list[tiktoken.Encoding]) -> dict[str, bytes]:
    """The content of tiktoken's table files."""
    return {
        encoding.name: b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in ranks)
        for encoding in encodings
        for ranks in [sorted(encoding._mergeable_ranks.items(), key=lambda item: item[1])]
    }


def test_a_table_is_downloaded_once_and_then_read_from_the_cache(
    monkeypatch: pytest.MonkeyPatch, tables: dict[str, bytes], fresh: Path
) -> None:
    asked: list[str] = []

    def download(url: str) -> bytes:
        asked.append(url)
        return tables["cl100k_base"]

    monkeypatch.setattr(tiktoken.load, "read_file", download)
    expected = TiktokenCounter("cl100k_base")(PROSE)
    (cached,) = fresh.iterdir()
    monkeypatch.setattr(counters, "_loaded", {})
    assert TiktokenCounter("cl100k_base")(PROSE) == expected

    cached.write_bytes(cached.read_bytes()[:1_000])
    monkeypatch.setattr(counters, "_loaded", {})
    assert TiktokenCounter("cl100k_base")(PROSE) == expected
    assert len(asked) == 2, "a damaged file is fetched again"
    assert cached.read_bytes() == tables["cl100k_base"]


@pytest.mark.usefixtures("fresh")
def test_an_encoding_that_is_already_loaded_or_of_a_plug_in_is_tiktokens_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def definition() -> dict[str, Any]:
        ranks = {bytes([byte]): byte for byte in range(256)}
        return {"name": "bytes", "pat_str": r"(?s).", "mergeable_ranks": ranks, "special_tokens": {}}

    tiktoken.list_encoding_names()
    monkeypatch.setitem(tiktoken.registry.ENCODING_CONSTRUCTORS or {}, "bytes", definition)
    assert TiktokenCounter("bytes")("é1") == 3
    monkeypatch.setattr(counters, "_loaded", {})
    assert counters._encoding("bytes") is tiktoken.registry.ENCODINGS["bytes"]


BUNDLE_PROGRAM = """
import os, sys, tempfile
import shared_core.tokens
assert "tiktoken" not in sys.modules, "importing the module loads tiktoken"
before = dict(os.environ)
import tiktoken.load
def fail(url): raise ConnectionError(url)
tiktoken.load.read_file = fail
for name in ("cl100k_base", "o200k_base"):
    assert shared_core.tokens.TiktokenCounter(name).name == f"tiktoken/{name}"
assert not [name for name in sys.modules if name.startswith("llama_index")]
assert dict(os.environ) == before
assert os.listdir(os.environ["TIKTOKEN_CACHE_DIR"]) == []
"""


def test_llama_indexs_tables_are_found_without_importing_it(tmp_path: Path) -> None:
    if importlib.util.find_spec("llama_index") is None:
        pytest.skip("the tables come with llama-index-core, which is not installed")
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", BUNDLE_PROGRAM],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "TIKTOKEN_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


# ------------------------------------------------------------------------------------------------------ conservative


def test_conservative_is_never_below_both_encodings_on_the_worst_texts(encodings: list[tiktoken.Encoding]) -> None:
    counter = ConservativeCounter()
    for text in TEXTS:
        assert counter(text) >= exact(encodings, text), text


def test_conservative_is_tight_on_english(encodings: list[tiktoken.Encoding]) -> None:
    for text in WORST["english prose"][:2]:
        assert ConservativeCounter()(text) <= 2 * exact(encodings, text)


def test_what_the_conservative_counter_knows_holds_in_both_tables(encodings: list[tiktoken.Encoding]) -> None:
    first, second = (set(encoding.token_byte_values()) for encoding in encodings)
    both = first & second

    def missing(*alphabets: str) -> set[str]:
        joined = map("".join, itertools.product(*alphabets))
        return {text for text in joined if text.encode() not in both}

    assert missing(conservative._LETTERS, conservative._LETTERS) == set(conservative._RARE_PAIRS)
    printable = "".join(chr(code) for code in range(33, 127) if not chr(code).isdigit())
    assert not missing(" ", printable)
    assert not missing(string.digits, string.digits)
    assert not missing(string.digits, string.digits, string.digits)
    assert all((b" " * size) in both for size in range(1, 80))

    wide = "".join(conservative._WIDE.findall("".join(map(chr, (*range(0xD800), *range(0xE000, 0x20000))))))
    assert all(char.encode()[:2] in both for char in wide)
    leads = {char.encode()[0] for char in wide}
    # one merge must not serve two characters: no token is the end of one and the start of another, nor a letter,
    # digit or sign and the start of one
    assert not [token for token in first | second if len(token) == 2 and token[1] in leads and token[0] != 0x20]


def test_known_words_are_one_token_in_every_form(encodings: list[tiktoken.Encoding]) -> None:
    forms = [*conservative._known_words()]
    assert len(forms) == 4 * len(set(conservative._WORDS.split()))
    for encoding, form in itertools.product(encodings, forms):
        assert len(encoding.encode_ordinary(form)) == 1, form
        for end in ("'s", "'t", "'re", "'ve", "'m", "'ll", "'d"):
            assert len(encoding.encode_ordinary(form + end)) <= 1 + len(end), form + end


def fragments() -> Iterator[st.SearchStrategy[str]]:
    """Parts that meet in ways a formula for each alone may not foresee."""
    words = conservative._WORDS.split()
    yield from (st.sampled_from(texts) for texts in WORST.values())
    yield st.sampled_from([*words, *(f" {word}" for word in words), *(f"\n{word.capitalize()}" for word in words)])
    yield st.sampled_from(["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'RE", "'lL", "'\u017f"])
    yield st.sampled_from(
        [*conservative._RARE_PAIRS, "\u0424\ub5d8", "12\u0663", "\xb23", "\ud800", "\u0301", "\u200d"]
    )
    yield st.text(conservative._LETTERS, min_size=1, max_size=8)
    yield st.text(string.ascii_letters, max_size=6)
    yield st.text(string.digits, max_size=6)
    yield st.text(string.punctuation, max_size=4)
    yield st.text(" \t\r\n\x0b\xa0\u2028", max_size=6)
    yield st.integers(1, 170).map(lambda size: " " * size)
    yield st.text(max_size=6)


@st.composite
def nasty_texts(draw: st.DrawFn) -> str:
    kinds = draw(st.lists(st.sampled_from(list(fragments())), min_size=1, max_size=4))
    parts = [draw(draw(st.sampled_from(kinds))) for _ in range(draw(st.integers(1, 8)))]
    starts = [draw(st.integers(0, max(len(part) - 1, 0))) if len(part) > 10 else 0 for part in parts]
    return "".join(part[start : start + 60] for part, start in zip(parts, starts, strict=True))


@given(nasty_texts())
@example("\u0424\ub5d8U\u0425\u30a1")
@example("'separate word'separate 'Reparate")
def test_conservative_is_never_below_both_encodings(encodings: list[tiktoken.Encoding], text: str) -> None:
    assert ConservativeCounter()(text) >= exact(encodings, text)


# ------------------------------------------------------------------------------------------------- what one may give


def test_a_callable_is_wrapped_without_a_name() -> None:
    counter = as_counter(len)
    assert isinstance(counter, TokenCounter)
    assert (counter.name, counter("four")) == (None, 4)
    assert CallableCounter(len, "letters").name == "letters"


@pytest.mark.parametrize("result", [-1, 1.0, True, None, "1"])
def test_a_callable_that_does_not_count_is_named(result: Any) -> None:
    def shaky(text: str) -> int:
        return result  # type: ignore[no-any-return]

    with pytest.raises(ValueError, match=r"shaky.*returned .*non-negative int"):
        as_counter(shaky)("text")
    with pytest.raises(ValueError, match="'mine'"):
        CallableCounter(shaky, "mine")("text")


@pytest.mark.usefixtures("encodings")
def test_names_stand_for_counters_and_come_back() -> None:
    own = CallableCounter(len)
    assert as_counter(own) is own
    assert isinstance(as_counter(None), TiktokenCounter)
    for name in ("tiktoken/o200k_base", "characters/4", "conservative/1"):
        assert as_counter(name).name == name
    assert as_counter(None).name == as_counter("gpt-4o").name == "tiktoken/o200k_base"
    assert as_counter("conservative").name == "conservative/1"


@pytest.mark.parametrize("value", [4, ConservativeCounter, [len]])
def test_what_cannot_count_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match=r"token_counter=.*"):
        as_counter(value)


@pytest.mark.parametrize("value", ["", "characters", "unknown"])
def test_a_name_that_stands_for_nothing_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="knows no encoding or model"):
        as_counter(value)


# --------------------------------------------------------------------------------------------------- whole messages


def test_a_message_costs_all_that_is_sent() -> None:
    letters = CallableCounter(len)
    call = ToolCall(id="c1", name="look", arguments='{"q":1}')
    asking = Message.assistant("hm", tool_calls=(call, call), name="bo", media_tokens=100, grounding="not counted")
    assert body_tokens(asking, letters) == 2 + 2 * (2 + 4 + 7) + 2 + 100
    assert message_tokens(asking, letters) == body_tokens(asking, letters) + 4
    assert message_tokens(Message.tool("42", "c1"), letters) == 4 + 2 + 2
    assert message_tokens(Message.user(""), CallableCounter(len, overhead=3)) == 3


def test_tools_cost_their_compact_json_and_framing() -> None:
    letters = CallableCounter(len)
    schema = {"name": "día", "parameters": {"type": "object"}}
    assert tools_tokens([schema, "plain"], letters) == len('{"name":"día","parameters":{"type":"object"}}') + 5 + (
        2 * TOOL_OVERHEAD
    )
    assert tools_tokens([], letters) == 0


@pytest.mark.parametrize("tools", ["text", {"name": "one"}, [{"f": len}], [{"a"}], [4], [{("a", "b"): 1}]])
def test_tools_that_are_no_json_are_refused(tools: Any) -> None:
    with pytest.raises(TypeError, match=r"tool schema.*(sequence|mapping)|sequence"):
        tools_tokens(tools, as_counter("characters/4"))


class Listing:
    """Counts letters, and lists what it has counted."""

    name: str | None = "letters"
    overhead = 7

    def __init__(self) -> None:
        self.counted: list[str] = []

    def __call__(self, text: str, /) -> int:
        """Return how many letters a text has."""
        self.counted.append(text)
        return len(text)


def test_texts_are_counted_once_and_the_oldest_again_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    letters = Listing()
    counter = RememberedCounter(letters)
    monkeypatch.setattr(tokens, "REMEMBERED", 2)
    assert [counter(text) for text in ("a", "a", "\ud800", "", "\ud800", "a")] == [1, 1, 1, 0, 1, 1]
    assert letters.counted == ["a", "\ud800", "", "a"]
    assert (counter.name, counter.overhead) == (letters.name, letters.overhead)


def test_a_prompt_counts_what_it_has_not_counted_before() -> None:
    letters = Listing()
    shown = [
        turn
        for number in range(20)
        for turn in (
            Message.user(f"photo {number}", media_tokens=30, grounding=f"page {number}"),
            Message.assistant(f"a cat {number}"),
        )
    ]
    with InfiniteMemory(
        max_tokens=2_000, reserve_tokens=0, token_counter=letters, keep_grounding="all", embedder="words"
    ) as memory:
        memory.add(shown)
        memory.context("and today?", tools=["a tool"])
        letters.counted.clear()
        memory.context("and tomorrow?", tools=["a tool"])
    assert letters.counted == ["and tomorrow?"]
