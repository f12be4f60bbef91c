"""What a user gets for a question: how much of the answer is in the prompt, and what it costs.

`context` is asked with its defaults, and thorough and precise; beside it, what others rank first is filled into the
same budgets, and what BM25 ranks first into as many tokens as `context` has recalled, beside the same window. Questions
about another conversation and small talk show whether recall can be silent.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from types import MappingProxyType
from typing import Any

from recall_ablations import Ablation
from recall_measures import BUDGETS, SHOWN_BUDGETS, Gain, Piece, filled, mentioned, rare_facts, rare_words, share
from recall_rankers import Ours, Prompt, Remembering, plain_peers
from recall_talks import OF_ONE_SUBJECT, Question, Talk

__all__ = ["EQUAL", "FOREIGN", "NEAR", "OWN", "WAYS", "Asked", "foreign_kind", "measure_prompts", "measure_without"]

WAYS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {"context": {}, "context, thorough": {"recall": "thorough"}, "context, precise": {"recall": "precise"}}
)
"""The arguments of our memory."""

EQUAL = "BM25 in its place"
"""The window of `context`, and what BM25 ranks first in the tokens that `context` has recalled."""

OWN, FOREIGN, NEAR = "its own questions", "another conversation's", "another conversation's of the same subject"
"""Kinds of lines; small talk has others."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One line that was said to the memory of a conversation.

    Attributes:
        dataset: what the conversation belongs to.
        conversation: its name there.
        kind: whether it is `OWN`, `FOREIGN` or `NEAR`, or what small talk it is.
        category: what kind of question it is; empty unless it is the conversation's own.
        gains: for each way and budget. Only own questions have those of others, and those within all of `BUDGETS`.
    """

    dataset: str
    conversation: str
    kind: str
    category: str
    gains: Mapping[str, Mapping[int, Gain]] = field(default_factory=dict)


def foreign_kind(talk: Talk) -> str:
    """Return what kind of lines the questions about another conversation of the same set are."""
    return NEAR if talk.dataset.startswith(OF_ONE_SUBJECT) else FOREIGN


def measure_prompts(talk: Talk, others: Mapping[str, Sequence[str]], embedder: Remembering | None) -> Iterator[Asked]:
    """Yield what every question about a conversation brings, in the order they are asked, then every other line.

    Args:
        talk: the conversation. Its memories hold what was said before each question.
        others: lines that have no answer in it, by kind; asked after its end.
        embedder: None: words alone.
    """
    asked_at, worth = partial(_asked_at, talk), Worth(talk)
    with ExitStack() as stack:
        memories = {
            way: stack.enter_context(Ours(talk, embedder, holding=0, **arguments)) for way, arguments in WAYS.items()
        }
        for at, questions in groupby(sorted(talk.questions, key=asked_at), key=asked_at):
            rankers = plain_peers(talk.until(at), embedder)
            for memory in memories.values():
                memory.hold(at)
            for question in questions:
                prompts = {way: _prompts(question, memory) for way, memory in memories.items()}
                rankings = {name: ranker.rank(question.text) for name, ranker in rankers.items()}
                prompts |= {name: _fillings(talk, ranking) for name, ranking in rankings.items()}
                prompts[EQUAL] = {
                    budget: _replaced(talk, prompt, rankings["BM25"]) for budget, prompt in prompts["context"].items()
                }
                gains = {way: worth.gains(question, each) for way, each in prompts.items()}
                yield Asked(talk.dataset, talk.name, OWN, question.category, gains)
        for memory in memories.values():
            memory.hold(len(talk.messages))
        for kind, lines in others.items():
            for line in lines:
                yield Asked(talk.dataset, talk.name, kind, "", _silence(line, memories))


def measure_without(
    talk: Talk, foreign: Sequence[str], embedder: Remembering | None, ablations: Sequence[Ablation]
) -> Iterator[Asked]:
    """Yield what every question brings with the defaults, and with each ingredient switched off; then foreign ones.

    Args:
        talk: the conversation.
        foreign: questions about another one, which are asked after its end.
        embedder: None: words alone.
        ablations: the ingredients. They change how a question is answered, and nothing that is stored.
    """
    every, worth = [Ablation("nothing"), *ablations], Worth(talk)
    memories = {_kept_with(ablation): ablation for ablation in every}
    with ExitStack() as stack:
        held = {key: stack.enter_context(_memory_without(talk, embedder, one)) for key, one in memories.items()}

        def asked(at: int, ask: Callable[[Ours], dict[int, Gain]]) -> dict[str, Mapping[int, Gain]]:
            found: dict[str, Mapping[int, Gain]] = {}
            for ablation in every:
                memory = held[_kept_with(ablation)]
                memory.hold(at)
                with ablation.applied():
                    found[f"without {ablation.name}"] = ask(memory)
            return found

        for question in sorted(talk.questions, key=partial(_asked_at, talk)):

            def gained(memory: Ours, question: Question = question) -> dict[int, Gain]:
                return worth.gains(question, _prompts(question, memory, SHOWN_BUDGETS))

            yield Asked(talk.dataset, talk.name, OWN, question.category, asked(_asked_at(talk, question), gained))
        for line in foreign:
            yield Asked(
                talk.dataset, talk.name, foreign_kind(talk), "", asked(len(talk.messages), partial(_quiet, line))
            )


def _kept_with(ablation: Ablation) -> tuple[object, ...]:
    """Return what tells apart the memories that ablations need: most change how a question is answered only."""
    return ablation.weight, *ablation.arguments.items()


def _memory_without(talk: Talk, embedder: Remembering | None, ablation: Ablation) -> Ours:
    if embedder is not None and ablation.weight is not None:
        embedder = embedder.weighing(ablation.weight)
    return Ours(talk, embedder, holding=0, **ablation.arguments)


def _quiet(line: str, memory: Ours) -> dict[int, Gain]:
    prompt = memory.prompt(line, SHOWN_BUDGETS[-1])
    return {SHOWN_BUDGETS[-1]: Gain(prompt.recalled, prompt.tokens)}


def _asked_at(talk: Talk, question: Question) -> int:
    return len(talk.messages) if question.at is None else question.at


def _prompts(question: Question, memory: Ours, budgets: Sequence[int] = BUDGETS) -> dict[int, Prompt]:
    return {budget: memory.prompt(question.text, budget) for budget in budgets}


def _fillings(talk: Talk, ranking: Sequence[Piece]) -> dict[int, Prompt]:
    """Return prompts with nothing but the first of a ranking, all of it recalled."""
    return {budget: _filled(talk, ranking, budget) for budget in BUDGETS}


def _replaced(talk: Talk, prompt: Prompt, ranking: Sequence[Piece]) -> Prompt:
    """Return a prompt with the first of a ranking, in as many tokens, in place of what was recalled."""
    new = [piece for piece in ranking if not prompt.window.issuperset(piece.places)]
    return _filled(talk, new, prompt.recalled, prompt.window)


def _filled(talk: Talk, ranking: Sequence[Piece], budget: int, window: frozenset[int] = frozenset()) -> Prompt:
    recalled = filled(ranking, budget)
    places = window | recalled
    spent, all_of_it = (sum(talk.tokens[place] for place in each) for each in (recalled, places))
    return Prompt(places, window, tuple(talk.messages[place].content for place in places), spent, all_of_it)


class Worth:
    """What prompts are worth for the questions about one conversation."""

    def __init__(self, talk: Talk) -> None:
        self._texts = [message.content for message in talk.messages]
        self._rare = rare_words(self._texts)

    def gains(self, question: Question, prompts: Mapping[int, Prompt]) -> dict[int, Gain]:
        """Return what each prompt for a question brings."""
        evidence = [self._texts[place] for place in question.evidence]
        facts = rare_facts(question.answer, question.text, evidence, self._rare)
        return {
            budget: Gain(one.recalled, one.tokens, share(one.places, question.evidence), mentioned(facts, one.texts))
            for budget, one in prompts.items()
        }


def _silence(line: str, memories: Mapping[str, Ours]) -> dict[str, dict[int, Gain]]:
    gains: dict[str, dict[int, Gain]] = {}
    for way, memory in memories.items():
        prompts = {budget: memory.prompt(line, budget) for budget in SHOWN_BUDGETS}
        gains[way] = {budget: Gain(prompt.recalled, prompt.tokens) for budget, prompt in prompts.items()}
    return gains
