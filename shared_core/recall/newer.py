"""Newer messages about what a message says: a question finds the old value by its words, and the new one by those."""

from collections import defaultdict
from collections.abc import Container, Sequence

from shared_core.index.lexical import idf_of
from shared_core.index.rows import ROLES
from shared_core.index.text import read_terms
from shared_core.prompt.hits import Place
from shared_core.recall.scope import Scope, reading

RARE = 20
"""A word that more messages hold tells nothing of what they are about."""

LEAST = 0.4
"""The share of a message's rare words, by their idf, that a newer one must hold.

Of 40 made-up changes, 24 to 27 reach a prompt of 600 tokens with .4 and 24 to 25 with .5. With .3 it is one more, and
foreign questions get more, too. For the two best results instead of one it is one more, and LoCoMo loses evidence.
"""

LONGEST = 300
"""Characters; longer messages are about too much to be renewed by one."""

SURE = 0.4
"""How likely the conversation must hold an answer at least, so that foreign questions get nothing more."""


def newer(scopes: Sequence[Scope], place: Place, text: str, asked: Container[str]) -> Place | None:
    """Return the later message in which a speaker says most of a message's rare words again; None: there is none.

    A question says nothing newer.

    Args:
        scopes: the scopes that were searched.
        place: the message.
        text: what it says.
        asked: the stems that were searched for.
    """
    if len(text) > LONGEST:
        return None
    weights: defaultdict[Place, float] = defaultdict(float)
    with reading(scopes):
        messages = sum(scope.line.upto for scope in scopes)
        for term in read_terms(text)[0]:
            held = [scope.session_index.lexical.holding(term, scope.line) for scope in scopes]
            count = sum(map(len, held))
            # A number or a word of this message alone, which was not asked for, may be the value itself.
            if (term in asked or (count > 1 and not term.isdigit())) and count <= RARE:
                for number, indices in enumerate(held):
                    for index in indices.tolist():
                        weights[number, index] += idf_of(count, messages)
        least = LEAST * weights[place]
        likely = [at for at, weight in weights.items() if weight >= least and _renews(scopes, at, place)]
        return max(likely, key=lambda at: (weights[at], _said(scopes, at)[1], at[1]), default=None)


def _renews(scopes: Sequence[Scope], new: Place, old: Place) -> bool:
    """Return whether what somebody says may be newer than an earlier message of the same speaker."""
    scope, (by, time), (same, earlier) = scopes[new[0]], _said(scopes, new), _said(scopes, old)
    row = scope.line.rows[new[1]]
    if by != same or by[0] == ROLES.index("tool") or not scope.eligible[new[1]]:
        return False
    if scope.session_index.column("asks")[row] or scope.session_index.column("characters")[row] > LONGEST:
        return False
    return new[1] > old[1] if new[0] == old[0] else time > earlier


def _said(scopes: Sequence[Scope], place: Place) -> tuple[tuple[int, str], float]:
    """Return who says a message, by role and name, and when."""
    session_index, row = scopes[place[0]].session_index, scopes[place[0]].line.rows[place[1]]
    name = int(session_index.column("speakers")[row])
    speaker = int(session_index.column("roles")[row]), session_index.names[name] if name >= 0 else ""
    return speaker, float(session_index.column("times")[row])
