"""A token counter that needs no table and never counts fewer tokens than OpenAI's encodings."""

import re
from collections import Counter
from functools import cache

from shared_core.plugins.base import OVERHEAD

_LETTERS = "abcdefghiklmnoprstuvwy"
"""Letters of which any two make a token in cl100k_base and o200k_base, except for the pairs in `_RARE_PAIRS`."""

_RARE_PAIRS = ("gk", "wv", "yf", "yv")

_ATOM = re.compile(
    # a word with its space; after an apostrophe, two letters may belong to a contraction, which is a piece of its own
    rf" [{_LETTERS}]+|(?<!')(?<!'[A-Za-z])[{_LETTERS}]{{3,}}"
    r"| (?=[!-/:-~])"  # a space goes with the character after it
    r"|(?<![^\x00-\x7f])[0-9]{2,3}"  # up to three digits are one token, also after digits of other scripts
    r"| {2,}(?= )"  # up to 79 spaces are one token; the last space of a run belongs to the word after it
)

_WIDE = re.compile(
    # characters whose first two UTF-8 bytes are one token in both encodings, so that they take a token less than bytes
    "[\xa0-\xb7\xb9-\xc4\xdf-\xf6\xf8-\xfd\u0410-\u0415\u041a-\u0424\u042f-\u044f\u0627-\u063a\u0641-\u064a"
    "\u0900-\u0aff\u0b80-\u0ebf\u1e80-\u1eff\u2000-\u20bf\u2500-\u267f\u2700-\u27bf\u3000-\u30ff"
    "\u4e00-\u507f\u5140-\u547f\u54c0-\u55bf\u56c0-\u577f\u57c0-\u597f\u5b40-\u5cbf\u5dc0-\u607f\u60c0-\u613f"
    "\u6200-\u63ff\u6440-\u64bf\u6500-\u687f\u6b00-\u6f3f\u7200-\u727f\u7380-\u743f\u7500-\u757f\u7640-\u777f"
    "\u7840-\u78bf\u7900-\u7bff\u7c40-\u7cbf\u7d00-\u7d7f\u7e80-\u7fbf\u8000-\u80ff\u81c0-\u837f\u83c0-\u843f"
    "\u8840-\u88ff\u8980-\u8abf\u8b40-\u8dff\u8f40-\u90ff\u9480-\u977f\u9800-\u98ff\uac00-\uacff\uadc0-\uae7f"
    "\ub100-\ub17f\ub280-\ub2ff\ub3c0-\ub43f\ub4c0-\ub53f\ub780-\ub87f\ub940-\ub9ff\uba40-\ubabf\ubbc0-\ubc3f"
    "\ubc80-\ubcff\uc080-\uc1bf\uc280-\uc2ff\uc540-\uc7bf\uc980-\uc9ff\uff00-\uffff\U0001f000-\U0001ffff]+"
)

_WHOLE_WORD = re.compile(r"(?:(?<![^\n])| )[A-Za-z]+(?=(?:'(?:[sdmt]|ll|ve|re))?(?![A-Za-z'\x80-\U0010ffff]))")
"""A word that both encodings look up as one piece: after a space or a new line, and without a contraction."""

_WORDS = """
    about access actions actually add additional after again against all almost already also always among amount an
    analytics and another any anything api app are around as ask at await away back bad based be because been before
    being best better between big bit body book books both build business but button buttons by calls can car card
    care change changes check children city class clear close code color com come coming community config configure
    consider const contact content control cool could country course create current data database date day def define
    description design device did difference different display do document does doing don done down during each
    element else email end ensure error even event ever every everyone everything example experience false family far
    favorite feature features feel few fields file find fine first focus following food for form found four free
    friends from fun function gallery game gap get getting give go going good got government great group guess had
    handle happy hard has have having he head headers health hello help her here hey hi his hope hour hours house how
    id if image images import important in include income index information initial input install into is issues it
    its job joy json just keep key kids kind know last later learning left length let li life like little loading log
    long look looking looks lot love made main make makes making man many may maybe me mean means meeting memory
    message meta method minutes model money month months more most much must my name nature need never new next nice
    night no not nothing now number of off often oh ok okay on one only or other others our out over own page pages
    part pause people performance person picture place playing please point positive pretty primary process progress
    project projects provide push put python query question questions quite reading real really reduce render request
    requests required response results return review right room route run same say school screen script second section
    see seeing self server session set seven share she should show side simple since six skills small so some
    something soon sorry sort sounds special specific start state status stay step steps still store structure stuff
    style styles submit such support sure system table take taking talk team tell ten test testing text th than thank
    thanks that the their them then there these they thing things think third this those three through throw time
    times title to today too top training true try trying two type under until up update url us use used user users
    using value version very wait want was water way we weather week well were what when where which while who why
    width will with within without won words work working world would wow writing yeah year years yes you your
"""
"""Words that are one token in both encodings, at the start of a line and after a space, capitalized or not."""


class ConservativeCounter:
    """Counts an upper bound of the tokens of cl100k_base and o200k_base, without a table.

    It counts about twice as many tokens on English text, and 2.5 times as many on code.

    The count is the number of UTF-8 bytes less the merges that are certain. A byte-level BPE ends when no two
    neighbouring tokens of a piece can be merged. If any two letters make a token, no two neighbours are single letters
    at the end, so n letters take at most (2n + 1) / 3 tokens. The tests check this, and each range and word here,
    against the tables.
    """

    name: str | None = "conservative/1"
    overhead = OVERHEAD

    def __call__(self, text: str, /) -> int:
        """Return an upper bound of the number of tokens of `text`."""
        known = _known_words()
        words = Counter(_WHOLE_WORD.findall(text))
        return _bound(text) - sum(count * known.get(word, 0) for word, count in words.items())


def _bound(text: str) -> int:
    """Return the bound without the list of words."""
    total = len(text)
    if not text.isascii():
        # tiktoken reads a lone surrogate as U+FFFD, which takes three bytes, too
        total = len(text.encode("utf-8", "surrogatepass")) - sum(map(len, _WIDE.findall(text)))
    total += sum(map(text.count, _RARE_PAIRS))
    return total - sum(count * _merges(atom) for atom, count in Counter(_ATOM.findall(text)).items())


def _merges(atom: str) -> int:
    """Return by how many an atom's tokens are certainly fewer than its characters."""
    size = len(atom)
    if atom.isspace():
        return size - 1 - size // 40 if size > 1 else 1  # two neighbouring tokens hold over 79 spaces
    if atom.isdigit():
        return size - 1
    return (size + (atom[0] == " ")) // 3  # without a space, a token may straddle the first letter


@cache
def _known_words() -> dict[str, int]:
    """Return how far `_bound` is above one token, for each form of each word."""
    words = [form for word in _WORDS.split() for form in (word, word.capitalize())]
    return {form: _bound(form) - 1 for word in words for form in (word, f" {word}")}
