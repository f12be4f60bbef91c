"""Errors in the words of the command: the engine speaks of arguments, and its user knows options."""

import re

__all__ = ["in_words"]

OPTIONS = {
    "before": "--before", "embedder": "--embedder", "how": "--how", "ids": "ID", "limit": "--limit",
    "max_tokens": "--max-tokens", "placement": "--placement", "port": "--port", "prompt": "--prompt",
    "reserve_tokens": "--reserve-tokens", "role": "--role", "session": "--session", "session_id": "--session",
    "since": "--since", "store": "--store", "summarizer": "--model", "system": "--system", "top_k": "--top-k",
    "until": "--until", "user_id": "--user", "vectors": "--vectors",
}  # fmt: skip
"""The arguments that the command passes on, and the options that its user sets them with."""

PHRASES = {
    r'(?:,? or |, )pass \w+="\w+"': "",  # what no option can do
    r"max_tokens, lower reserve_tokens, shorten it": "max_tokens, lower reserve_tokens, or shorten it",
    r"pass the first one, or call index\(again=True\) .*": "leave out --embedder, or name the first one",
    r"(postgresql://user@host/database), or a Store": r"or \1",
    r"this memory stands on ('[^']*+'); check out another branch": r"\1 is checked out; check out another branch",
    r"make another branch main, or rewind it$": "reset moves its end",
    r"leave out vectors$": "leave out --vectors",
    r"leave out vectors or redact": "leave out --vectors, or what takes parts out of the messages",
    r"prompt and summarizer are for": "--prompt and --model are for",
    r"pass session=, one of": "choose one with --from:",
    r"\bpass (?=[a-z_]+=)": "use ",
    r"\bpass your\b": "give your",
    r", or wrap any model: .*": "",
    r'scope="user": pass the user_id whose .*': "scope=user searches all sessions of a user: say whose, with --user",
    r"None means that there is none": "leave it out if there is none",
    r"^(?:name|path|number)=": "",
    r"(?s)\. Please specify 'model_provider' directly.*": "; write its provider before it, as in openai:gpt-4o-mini",
    r"\[Errno \d+\] ": "",
    r"^Invalid value: ": "",
    r"\bValue error, ": "",
    r"\bInput should be greater than or equal to ": "expected at least ",
    r"\bInput should be a valid integer\b.*": "expected a whole number",
}
"""What is said in other words, and how: patterns and what they become."""

# What is quoted, such as 'top_k=9', was written so by the user.
NAMED = re.compile(rf"(?<!')\b(?:({'|'.join(OPTIONS)})=(?:True\b)?|([a-z]+_(?:id|k|tokens))\b)")


def in_words(text: str) -> str:
    """Return the message of an error with options instead of arguments."""
    for pattern, words in PHRASES.items():
        text = re.sub(pattern, words, text)
    return NAMED.sub(_option, text)


def _option(found: re.Match[str]) -> str:
    """Return an option instead of `argument=`, with a space before its value; or instead of an argument's name."""
    option = OPTIONS.get(found[1] or found[2], found[0])
    return f"{option} " if found[0].endswith("=") else option
