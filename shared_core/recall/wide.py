"""Which questions are about many messages at once: orders, summaries, lists, counts and developments; pure.

The rules are data: patterns by kind of question, in English.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType

_WE = r"(?:i|we|you|he|she|they)(?:['\u2019](?:ve|d))?(?: have| had| ever)*"
_TALKED = (
    r"(?:mention|discuss|bring|brought|talk|say|said|tell|told|cover|rais|describ|shar|ask|name|list|suggest|recommend"
    r"|decid|plan|visit|read|watch|try|tried|buy|bought)\w*"
)
_TALKS = r"(?:conversations?|chats?|sessions?|messages?|talks?|discussions?|meetings?)"

WIDE: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "order": (
            r"\bin (?:which|what|the) order\b",
            r"\bthe order (?:in which|of|that|we|i)\b",
            r"\bchronolog\w+",
        ),
        "summary": (
            r"\bsummari[sz]e\b|\bsum up\b|\brecap\b",
            r"\bwalk me through (?:how (?!to\b|do\b|can\b)|what|the order|my|our|all)\b",
            r"\b(?:give|provide|write|make|prepare|show|get|have|need|want|like)\b[^.?!]{0,40}"
            r"\b(?:summary|recap|rundown|timeline)\b",
        ),
        "list": (
            r"^\W*(?:(?:please|now|and|can you|could you|would you)[,\s]+)*(?:list|enumerate)\b",
            r"\b(?:list|name|enumerate|mention|show|tell|give|remember|recall)(?: me| us| of)? (?:all|every|each)\b",
            r"\b(?:what|which) (?:are|were) all\b",
            rf"\b(?:all|every|each)(?! times?\b)(?: of)?(?: the| my| our)?(?: \w+){{0,4}}? (?:that )?{_WE} {_TALKED}",
            rf"\beverything (?:that )?{_WE} {_TALKED}",
        ),
        "count": (
            r"\bhow many times\b",
            r"\bhow many (?:\w+ ){0,2}?(?:different|unique|distinct|separate|various)\b",
            r"\bhow many\b[^.?!]{0,60}\b(?:mention(?:ed)?|listed|bring up|brought up|talk(?:ed)? about)\b",
        ),
        "development": (
            r"\bover time\b",
            rf"\b(?:across|throughout|over|during)(?: all)?(?: of)? (?:my|our|the|these|all)(?: \w+){{0,2}} {_TALKS}\b",
            r"\bhow (?:have|has|did)\b[^.?!]{0,80}\b(?:develop|chang|progress)(?:ed|e)?"
            r" (?:over|throughout|across|so far|during|since|from)\b",
            r"\bhow (?:have|has|did)\b[^.?!]{0,80}\bevolved?\b",
        ),
        "discussion": (
            r"\b(?:discussions?|conversations?|debates?) (?:on|about|of|around|over|regarding|concerning)\b",
            r"\bwhat (?:did|have|had) (?:we|they|people|everyone|the (?:group|team|others)|\w+ and \w+)\b[^.?!]{0,20}"
            r"\b(?:discuss|talk|say|said|decide|conclude|agree|think)\w*",
            r"\bwhen (?:discussing|talking about)\b",
        ),
        "opinion": (
            r"\bwhat (?:did|does|do|was|were|is|are)\b[^.?!]{0,60}"
            r"\b(?:thinks?|thought|opinions?|attitudes?|views?|perspectives?)"
            r" (?:about|of|on|towards?|regarding)\b",
        ),
    }
)
"""Patterns for `re`, without case, by kind of question.

All of BEAM's questions for orders and summaries match, 68 % of QMSum's, and 1 % of LoCoMo's, which ask how many times
something happened or what somebody thinks of it.
"""

_ANY = tuple(re.compile("|".join(patterns), re.IGNORECASE) for patterns in WIDE.values())


def is_wide(text: str) -> bool:
    """Return whether a question is about many messages at once, as "List all books I mentioned" is."""
    return any(pattern.search(text) for pattern in _ANY)
