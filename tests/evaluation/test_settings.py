"""Settings: what can be tried, how values are written, and what an error says."""

import inspect
from typing import Any

import pytest

from shared_core import InfiniteMemory
from shared_core.evaluation.settings import Setting, budget_of, parsed, settings_of, triable

OBJECTS = {
    "store", "session_id", "user_id", "durability", "index_cache", "embed_text", "recall_template", "summarizer",
    "summary_template", "strippers", "on_event", "clock", "new_id", "shorten_grounding",
}  # fmt: skip
"""Arguments that say where the conversation is, or have no value that can be written."""


def test_every_argument_whose_value_can_be_written_can_be_tried() -> None:
    arguments = inspect.signature(InfiniteMemory).parameters
    assert {*triable()} == arguments.keys() - OBJECTS
    defaults = {name: arguments[name].default for name in triable()}
    for name, default in defaults.items():
        written = "none" if default is None else str(default)
        assert parsed([f"{name}={written}"], "--try") == {name: [default]}


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (["recall=balanced,precise"], {"recall": ["balanced", "precise"]}),
        (["recall=precise,embedder=static,mine"], {"recall": ["precise"], "embedder": ["static", "mine"]}),
        (["recall=precise", "recall=thorough, precise"], {"recall": ["precise", "thorough"]}),
        (["top_k=5,none", "recall_tokens=0.5,1000"], {"top_k": [5, None], "recall_tokens": [0.5, 1000]}),
        (["keep_grounding=newest,3"], {"keep_grounding": ["newest", 3]}),
        (["system=Be brief = good"], {"system": ["Be brief = good"]}),
        ([], {}),
    ],
)  # fmt: skip
def test_values_are_written_after_a_name(written: list[str], expected: dict[str, list[Any]]) -> None:
    found = parsed(written, "--try")
    assert found == expected
    assert [list(map(type, values)) for values in found.values()] == [list(map(type, v)) for v in expected.values()]


@pytest.mark.parametrize(
    ("tries", "what"),
    [
        ({"recal": ["precise"]}, "recal=['precise']: there is no such argument to try; did you mean 'recall'?"),
        ({"clock": [1]}, "clock=[1]: there is no such argument to try; these can be tried: 'system', 'scope', "),
        ({"recall": "precise"}, "recall='precise': expected a list of values; write recall=['precise']"),
        ({"recall": ["x"]}, "recall='x': choose one of 'balanced', 'thorough', 'precise'"),
        ({"max_tokens": [10]}, "max_tokens=10 is not larger than reserve_tokens=500"),
    ],
)
def test_what_cannot_be_tried(tries: Any, what: str) -> None:
    with pytest.raises(ValueError, match=r"tried|try|list|choose|larger") as caught:
        settings_of({}, tries)
    assert str(caught.value).startswith(what)


def test_the_present_setting_comes_first_and_the_others_share_its_arguments() -> None:
    found = settings_of({"top_k": 3}, {"recall": ["precise"], "top_k": [None], "embedder": ["static"]})
    assert found == [
        Setting("present", {"top_k": 3}),
        Setting("recall=precise", {"top_k": 3, "recall": "precise"}),
        Setting("top_k=none", {"top_k": None}),
        Setting("embedder=static", {"top_k": 3, "embedder": "static"}),
    ]
    assert [one.reindexes for one in found] == [False, False, False, True]
    assert budget_of(found[0]) == 4096 - 500
    assert budget_of(Setting("x", {"max_tokens": 900, "reserve_tokens": 100})) == 800
