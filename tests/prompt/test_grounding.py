"""Grounding as it is written into a prompt: joined, and trimmed where it does not fit."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from shared_core import Grounding, GroundingItem, InfiniteMemory, Message
from shared_core.messages import CUT, with_grounding
from shared_core.prompt.grounding import FittedGrounding, fit_grounding, render_grounding
from shared_core.prompt.hits import Kind, Reason
from shared_core.strippers import set_apart
from shared_core.tokens import CallableCounter


def found(*items: str | tuple[str, float], header: str = "", footer: str = "", note: str = "") -> Grounding:
    given = [GroundingItem(text=item) if isinstance(item, str) else GroundingItem(text=item[0], score=item[1])
             for item in items]  # fmt: skip
    return Grounding(items=tuple(given), header=header, footer=footer, omitted_note=note)


def within(characters: int) -> Callable[[str], bool]:
    return lambda text: len(text) <= characters


texts = st.text(alphabet=st.sampled_from("ab \n漢é<{"), max_size=60)
groundings = st.builds(
    Grounding,
    items=st.lists(
        st.builds(GroundingItem, text=texts, score=st.none() | st.floats(-1, 1)), max_size=5
    ).map(tuple),
    header=texts.map(str.strip),
    footer=texts.map(str.strip),
    omitted_note=st.sampled_from(["", "{count} left out", "a note longer than what it stands for, {count}"]),
)  # fmt: skip


class TestRender:
    def test_an_item_without_text_is_not_missing(self) -> None:
        grounding = found("a", "", ("b", 0.5))
        assert render_grounding(grounding) == "a\n\nb"
        assert fit_grounding(grounding, within(4)) == FittedGrounding("a\n\nb")
        assert fit_grounding(grounding, within(3)) == FittedGrounding("b", omitted=1)

    def test_the_note_says_how_many_are_missing(self) -> None:
        grounding = found("a", "b", "c", note="({count} more)", footer="F")
        assert render_grounding(grounding, grounding.shown([0])) == "a\n\n(2 more)\n\nF"
        assert render_grounding(grounding) == "a\n\nb\n\nc\n\nF"


class TestFit:
    def test_without_scores_the_first_is_the_best_and_any_score_beats_none(self) -> None:
        assert fit_grounding(found("first", "second"), within(6)) == FittedGrounding("first", omitted=1)
        assert fit_grounding(found("first", ("second", -0.9)), within(6)) == FittedGrounding("second", omitted=1)

    def test_a_line_end_is_the_end_of_a_word_too(self) -> None:
        assert fit_grounding(found("first line\nsecond line"), within(13)).text == "first line"

    def test_without_spaces_nearby_the_cut_falls_anywhere_rather_than_far_back(self) -> None:
        assert fit_grounding(found("note: " + "漢" * 100), within(80)).text == "note: " + "漢" * 74
        assert fit_grounding(found("   " + "g" * 100), within(20)).text == "   " + "g" * 17

    def test_a_note_longer_than_what_it_stands_for_does_not_drive_out_what_fits(self) -> None:
        grounding = found("aa", "bb", "cc", note="a note longer than all of it")
        assert fit_grounding(grounding, within(10)) == FittedGrounding("aa\n\nbb\n\ncc")

    @given(groundings, st.integers(0, 200))
    def test_what_is_returned_fits_and_says_what_is_missing(self, grounding: Grounding, limit: int) -> None:
        fitted = fit_grounding(grounding, within(limit))
        whole = render_grounding(grounding)
        assert len(fitted.text) <= limit
        assert fitted.trimmed == (len(whole) > limit)
        if not fitted.trimmed:
            assert fitted.text == whole
        if fitted.text:
            assert fitted.text.startswith(grounding.header)
            assert fitted.text.endswith(grounding.footer)
        if fitted.omitted and fitted.text and not fitted.cut:
            strongest = sorted(
                (i for i, item in enumerate(grounding.items) if item.text),
                key=lambda i: (-(s if (s := grounding.items[i].score) is not None else -9), i),
            )
            kept = strongest[: len(strongest) - fitted.omitted]
            assert fitted.text == render_grounding(grounding, grounding.shown(kept))
            one_more = render_grounding(grounding, grounding.shown(strongest[: len(kept) + 1]))
            assert len(one_more) > limit

    def test_where_the_text_up_to_a_word_does_not_fit_the_longer_one_that_does_is_taken(self) -> None:
        def fits(text: str) -> bool:
            return len(text) <= 12 and text != "one two"

        assert fit_grounding(found("one two three four"), fits).text == "one two thre"

    @given(groundings, st.integers(0, 60))
    def test_it_fits_also_where_a_shorter_text_can_count_more(self, grounding: Grounding, limit: int) -> None:
        def fits(text: str) -> bool:
            # As with byte pairs: what is complete is one token, what is cut in the middle is many.
            return len(text) // (4 if len(text) % 3 == 0 else 1) <= limit

        assume(fits(""))
        assert fits(fit_grounding(grounding, fits).text)


def in_brief(grounding: Grounding, brief: Callable[[str], str]) -> Grounding:
    """The same grounding, whose passages say what they are in less detail."""
    items = tuple(item.model_copy(update={"brief": brief(item.text)}) for item in grounding.items)
    return grounding.model_copy(update={"items": items})


def first_word(text: str) -> str:
    return text.split()[0]


class TestLessDetail:
    """Source 001: a description is left out before the talk is."""

    ITEMS = in_brief(
        found(("alpha one two", 0.5), ("beta three four", 0.9), ("gamma", 0.1), ("delta five", 0.2), header="H"),
        first_word,
    )

    def fitted(self, limit: int) -> FittedGrounding:
        return fit_grounding(self.ITEMS, within(limit))

    @pytest.mark.parametrize(
        ("text", "omitted", "shortened"),
        [
            ("H|alpha one two|beta three four|gamma|delta five", 0, 0),
            ("H|alpha one two|beta three four|gamma|delta", 0, 1),  # gamma cannot be any shorter
            ("H|alpha|beta three four|gamma|delta", 0, 2),
            ("H|alpha|beta|gamma|delta", 0, 3),
            ("H|alpha|beta|delta", 1, 3),
            ("H|alpha|beta", 2, 2),
            ("H|beta", 3, 1),
        ],
    )
    def test_all_are_short_before_one_is_left_out(self, text: str, omitted: int, shortened: int) -> None:
        text = text.replace("|", "\n\n")
        assert self.fitted(len(text)) == FittedGrounding(text, omitted, shortened=shortened)
        assert self.fitted(len(text) - 1).text != text

    @pytest.mark.parametrize("answer", ["", "alpha one two", "alpha one two and more"])
    def test_what_is_not_shorter_changes_nothing(self, answer: str) -> None:
        one = found("alpha one two", "b")
        for limit in range(20):
            assert fit_grounding(in_brief(one, lambda _: answer), within(limit)) == fit_grounding(one, within(limit))

    @given(groundings, st.integers(0, 200))
    def test_never_fewer_items_than_without(self, grounding: Grounding, limit: int) -> None:
        plain = fit_grounding(grounding, within(limit))
        brief = fit_grounding(in_brief(grounding, lambda text: text[:3]), within(limit))
        assert len(brief.text) <= limit
        assert brief.omitted <= plain.omitted
        assert brief == plain or plain.trimmed


class TestLessDetailInAPrompt:
    SETTINGS: dict[str, Any] = {"token_counter": CallableCounter(len, overhead=0), "reserve_tokens": 0}  # noqa: RUF012
    ASKED = Message.user("which?", grounding=TestLessDetail.ITEMS)

    def test_the_report_says_so(self) -> None:
        with InfiniteMemory(max_tokens=40, **self.SETTINGS) as memory:
            context = memory.context(self.ASKED)
            assert context.messages[-1].content == "H\n\nalpha\n\nbeta\n\ngamma\n\ndelta\n\nwhich?"
            assert context.report.degraded == ("3 of 4 retrieved passages given in less detail: they do not fit whole",)
            (line,) = [line for line in context.report.included if line.kind is Kind.GROUNDING]
            assert (line.reason, line.part) == (Reason.QUESTION, True)
            assert context.report.total_tokens == len(context.messages[-1].content)
            memory.max_tokens = 25
            assert memory.context(self.ASKED).report.degraded == (
                "2 of 4 retrieved passages given in less detail: they do not fit whole",
                "2 of 4 retrieved passages left out: they do not fit",
            )
            memory.max_tokens = 12
            assert memory.context(self.ASKED).report.degraded == (
                "3 of 4 retrieved passages left out: they do not fit",
                "the end of the best of 4 retrieved passages left out: it does not fit",
            )
            memory.max_tokens = 99
            assert memory.context(self.ASKED).report.degraded == ()

    def test_less_detail_is_fenced_too(self) -> None:
        passages = in_brief(found(("</earlier_messages> " * 9, 0.5)), lambda text: "</earlier_messages>")
        with InfiniteMemory(max_tokens=50, **self.SETTINGS) as memory:
            asked = memory.context(Message.user("?", grounding=passages))
        assert asked.messages[-1].content == "&lt;/earlier_messages>\n\n?"


class TestSurrounding:
    """Text that stood around the question in the same message."""

    TEXT = f"Context information is below.\n-----\none one\n\n{'two ' * 20}\n\nthree\n-----\nQuery: so?\nAnswer: "

    def question(self) -> Message:
        start = self.TEXT.index("so?")
        return set_apart(Message.user(self.TEXT, id="m"), start, start + 3)

    def test_it_is_sent_as_it_was_if_it_fits(self) -> None:
        asked = self.question()
        assert asked.grounding is not None
        assert asked.content == "so?"
        assert asked.grounded == asked.whole == Message.user(self.TEXT, id="m")
        assert fit_grounding(asked.grounding, lambda text: True, content="so?") == FittedGrounding(self.TEXT)
        assert with_grounding(asked, self.TEXT) == asked.whole
        assert with_grounding(asked, "") == Message.user("so?", id="m")

    def test_the_last_paragraphs_are_left_out_first(self) -> None:
        asked = self.question()
        assert asked.grounding is not None
        fitted = fit_grounding(asked.grounding, lambda text: len(text) < 115, content="so?")
        note = "(Left out for length: 2 parts.)"
        expected = f"Context information is below.\n-----\none one\n\n{note}\n\nso?\nAnswer: "
        assert fitted == FittedGrounding(expected, omitted=2)
        assert with_grounding(asked, fitted.text).content == expected
        assert fit_grounding(asked.grounding, lambda text: False, content="so?") == FittedGrounding("", omitted=3)

    def test_of_text_before_its_passages_it_is_the_same(self) -> None:
        text = "So?\n\none\n\ntwo"
        asked = set_apart(Message.user(text), 0, 3)
        assert (asked.content, asked.whole.content) == ("So?", text)
        assert asked.grounding is not None
        assert render_grounding(asked.grounding, asked.grounding.shown([0]), content="So?") == (
            "So?\n\none\n\n(Left out for length: 1 parts.)"
        )
        beginning = set_apart(Message.tool("abc def", "1"), 0, 3, mark=CUT)
        assert (beginning.content, beginning.whole.content) == ("abc […]", "abc def")

    def test_the_prompt_sends_it_with_the_newest_question_and_counts_it(self) -> None:
        with InfiniteMemory(token_counter=CallableCounter(len, overhead=0), max_tokens=500, reserve_tokens=0) as memory:
            memory.add([self.question().replace(id=None), Message.assistant("Yes."), self.question().replace(id=None)])
            context = memory.context()
            assert [message.content for message in context.messages] == ["so?", "Yes.", self.TEXT]
            assert context.report.total_tokens == len("so?") + len("Yes.") + len(self.TEXT)
