"""Settings: what can be tried, how values are written, and what an error says."""

from typing import Any

import pytest

from shared_core.evaluation.settings import parsed, settings_of


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
        ({"user_id": ["x"]}, "user_id=['x']: there is no such argument to try"),
        ({"recall": "precise"}, "recall='precise': expected a list of values; write recall=['precise']"),
        ({"recall": ["x"]}, "recall='x': choose one of 'balanced', 'thorough', 'precise'"),
        ({"max_tokens": [10]}, "max_tokens=10 is not larger than reserve_tokens=500"),
    ],
)
def test_what_cannot_be_tried(tries: Any, what: str) -> None:
    with pytest.raises(ValueError, match=r"tried|try|list|choose|larger") as caught:
        settings_of({}, tries, None)
    assert str(caught.value).startswith(what)


def test_the_present_setting_comes_first_and_the_others_share_its_arguments() -> None:
    tries: dict[str, Any] = {"recall": ["precise"], "top_k": [None], "embedder": ["static"]}
    assert settings_of({"top_k": 3}, tries, None) == {
        "present": {"top_k": 3},
        "recall=precise": {"top_k": 3, "recall": "precise"},
        "top_k=none": {"top_k": None},
        "embedder=static": {"top_k": 3, "embedder": "static"},
    }
