"""What a user gets for a question: how much of the answer is in the prompt, and what it costs.

`context` is asked with its defaults, and thorough and precise; beside it, what others rank first is filled into the
same budgets. Questions about another conversation and small talk show whether recall can be silent.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from types import MappingProxyType
from typing import Any

from recall_ablations import Ablation
from recall_measures import BUDGETS, SHOWN_BUDGETS, Gain, Piece, facts, filled, mentioned, share
from recall_rankers import Ours, Prompt, Remembering, plain_peers
from recall_talks import Question, Talk

__all__ = ["FOREIGN", "OWN", "WAYS", "Asked", "measure_prompts", "measure_without"]

WAYS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {"context": {}, "context, thorough": {"recall": "thorough"}, "context, precise": {"recall": "precise"}}
)
"""The arguments of our memory."""

OWN, FOREIGN = "its own questions", "another conversation's"
"""Kinds of lines; small talk has others."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One line that was said to the memory of a conversation.

    Attributes:
        dataset: what the conversation belongs to.
        conversation: its name there.
        kind: whether it is `OWN` or `FOREIGN`, or what small talk it is.
        category: what kind of question it is; empty unless it is the conversation's own.
        gains: for each way and budget. Only own questions have those of others, and those within all of `BUDGETS`.
    """

    dataset: str
    conversation: str
    kind: str
    category: str
    gains: Mapping[str, Mapping[int, Gain]] = field(default_factory=dict)


def measure_prompts(talk: Talk, others: Mapping[str, Sequence[str]], embedder: Remembering | None) -> Iterator[Asked]:
    """Yield what every question about a conversation brings, in the order they are asked, then every other line.

    Args:
        talk: the conversation. Its memories hold what was said before each question.
        others: lines that have no answer in it, by kind; asked after its end.
        embedder: None: words alone.
    """
    asked_at = partial(_asked_at, talk)
    with ExitStack() as stack:
        memories = {
            way: stack.enter_context(Ours(talk, embedder, holding=0, **arguments)) for way, arguments in WAYS.items()
        }
        for at, questions in groupby(sorted(talk.questions, key=asked_at), key=asked_at):
            rankers = plain_peers(talk.until(at), embedder)
            for memory in memories.values():
                memory.hold(at)
            for question in questions:
                gains = {way: _prompts(question, memory) for way, memory in memories.items()}
                gains |= {
                    name: _fillings(talk, question, ranker.rank(question.text)) for name, ranker in rankers.items()
                }
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
    every = [Ablation("nothing"), *ablations]
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
            gains = asked(_asked_at(talk, question), partial(_prompts, question, budgets=SHOWN_BUDGETS))
            yield Asked(talk.dataset, talk.name, OWN, question.category, gains)
        for line in foreign:
            yield Asked(talk.dataset, talk.name, FOREIGN, "", asked(len(talk.messages), partial(_quiet, line)))


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


def _prompts(question: Question, memory: Ours, budgets: Sequence[int] = BUDGETS) -> dict[int, Gain]:
    return {budget: _gain(question, memory.prompt(question.text, budget)) for budget in budgets}


def _fillings(talk: Talk, question: Question, ranking: Sequence[Piece]) -> dict[int, Gain]:
    return {budget: _gain(question, _filling(talk, ranking, budget)) for budget in BUDGETS}


def _filling(talk: Talk, ranking: Sequence[Piece], budget: int) -> Prompt:
    """Return a prompt with nothing but the first of a ranking, all of it recalled."""
    places = frozenset(filled(ranking, budget))
    tokens = sum(talk.tokens[place] for place in places)
    return Prompt(places, tuple(talk.messages[place].content for place in places), tokens, tokens)


def _gain(question: Question, prompt: Prompt) -> Gain:
    said = mentioned(facts(question.answer, question.text), prompt.texts)
    return Gain(prompt.recalled, prompt.tokens, share(prompt.places, question.evidence), said)


def _silence(line: str, memories: Mapping[str, Ours]) -> dict[str, dict[int, Gain]]:
    gains: dict[str, dict[int, Gain]] = {}
    for way, memory in memories.items():
        prompts = {budget: memory.prompt(line, budget) for budget in SHOWN_BUDGETS}
        gains[way] = {budget: Gain(prompt.recalled, prompt.tokens) for budget, prompt in prompts.items()}
    return gains
