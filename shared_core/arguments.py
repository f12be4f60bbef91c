"""Checks of arguments: an error names the argument, its value and what is accepted."""

import inspect
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import date, datetime, time
from difflib import get_close_matches
from functools import wraps
from numbers import Real
from typing import Any, TypeVar

from pydantic import BaseModel

from shared_core.display import short, shown
from shared_core.errors import BudgetError
from shared_core.formats.fields import ROLE_NAMES, Role
from shared_core.messages import Message, in_utc, one_message, storable_name

Value = TypeVar("Value")
Method = TypeVar("Method", bound=Callable[..., Any])

# Values


def one_of(name: str, value: Value, choices: Collection[Value], *, advice: str = "") -> Value:
    """Return a value that is one of the choices.

    Raises:
        ValueError: it is none of them; the message ends with the advice.
    """
    if value not in choices:
        raise ValueError(f"{shown(name, value)}: choose one of {', '.join(map(repr, choices))}{advice}")
    return value


def role_names(name: str, value: Any) -> tuple[Role, ...]:
    """Return the roles that one name, or a list of names, stands for.

    Raises:
        ValueError: a name is unknown.
    """
    names = [value] if isinstance(value, str) or not isinstance(value, Iterable) else list(value)
    for one in names:
        if not isinstance(one, str) or one.lower() not in ROLE_NAMES:
            raise ValueError(f"{shown(name, one)}: choose one of {', '.join(map(repr, ROLE_NAMES))}")
    return tuple(dict.fromkeys(ROLE_NAMES[one.lower()] for one in names))


def whole_number(name: str, value: int, *, least: int) -> int:
    """Return an integer of at least `least`.

    Raises:
        ValueError: it is smaller, or no integer; True and False are none.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{shown(name, value)}: expected a whole number of at least {least}")
    return value


def in_range(name: str, value: float, low: float, high: float, *, advice: str = "") -> float:
    """Return a number from `low` to `high`, both included.

    Raises:
        ValueError: it lies outside, or is no number; NaN, True and False are none. The message ends with the advice.
    """
    if isinstance(value, bool) or not isinstance(value, Real) or not low <= value <= high:
        limits = f"from {low:g} to {high:g}" if high < float("inf") else f"of at least {low:g}"
        raise ValueError(f"{shown(name, value)}: expected a number {limits}{advice}")
    return value


def text_value(name: str, value: Any) -> str:
    """Return a text.

    Raises:
        ValueError: it is something else.
    """
    if not isinstance(value, str):
        raise ValueError(f"{shown(name, value)}: expected a text")
    return value


def name_text(name: str, value: Any) -> str:
    """Return a name or an id, which may be empty.

    Raises:
        ValueError: it cannot be stored, or is no text.
    """
    text = text_value(name, value)
    try:
        return storable_name(text)
    except ValueError as error:
        raise ValueError(f"{shown(name, value)}: {error}") from None


def name_value(name: str, value: Any) -> str:
    """Return a name that is not empty.

    Raises:
        ValueError: it is empty, cannot be stored, or is no text.
    """
    if not name_text(name, value):
        raise ValueError(f"{name}='': expected a name")
    return value  # type: ignore[no-any-return]


def texts(name: str, values: Any) -> Sequence[str]:
    """Return a list of ids; ValueError if it is one text, or anything else."""
    if isinstance(values, str):
        raise ValueError(f"{shown(name, values)}: expected a list; write {name}=[{values!r}]")
    if not isinstance(values, Iterable) or isinstance(values, Mapping | bytes):
        raise ValueError(f"{shown(name, values)}: expected a list of texts")
    listed = list(values)
    for value in listed:
        if not isinstance(value, str):
            raise ValueError(f"{shown(name, value)}: expected the id of a message: pass message.id")
    return [name_text(name, value) for value in listed]


def session_names(session_id: Any, user_id: Any) -> None:
    """Check the name of a session and of its user. An empty one is a variable that was not set, shared by everybody.

    Raises:
        ValueError: one is empty, cannot be stored, or is no text.
    """
    if not name_text("session_id", session_id):
        raise ValueError("session_id='': expected the name of the conversation; leave it out for 'default'")
    if user_id is not None and not name_text("user_id", user_id):
        raise ValueError("user_id='': expected the name of the user; None means that there is none")


def function(name: str, value: Any, form: str) -> None:
    """Check that an argument is a function or another object that can be called; a class is none.

    Raises:
        TypeError: it cannot be called; the message shows the `form` that is expected.
    """
    if isinstance(value, type) or not callable(value):
        raise TypeError(f"{shown(name, value)}: expected a function, {form}")


def instance(name: str, value: object, kind: type) -> None:
    """Check that an argument is an object of a class; TypeError if it is not."""
    if not isinstance(value, kind):
        article = "an" if kind.__name__[0] in "AEIO" else "a"
        raise TypeError(f"{shown(name, value)}: expected {article} {kind.__name__}; write {name}={kind.__name__}(…)")


def file_path(name: str, value: Any) -> str | os.PathLike[str]:
    """Return the path of a file.

    Raises:
        TypeError: it is neither a text nor a path.
        ValueError: it is empty.
    """
    if not isinstance(value, str | os.PathLike):
        raise TypeError(f"{shown(name, value)}: expected the path of a file, as a text or a Path")
    if value == "":
        raise ValueError(f"{name}='': expected the path of a file")
    return value


def moment(name: str, value: Any, *, end: bool = False) -> datetime:
    """Return a time, given as a datetime, a date or an ISO 8601 text. Without a zone, it is UTC.

    Args:
        name: the argument.
        value: its value.
        end: whether a date means the end of its day instead of the beginning.

    Raises:
        TypeError: it is something else.
        ValueError: the text is no time.
    """
    error = f"{shown(name, value)}: expected a time, such as '2026-01-31', '2026-01-31T10:00' (UTC) or a datetime"
    if isinstance(value, str):
        try:
            value = _parsed(value.strip())
        except ValueError:
            raise ValueError(error) from None
    if isinstance(value, datetime):
        return in_utc(value)
    if isinstance(value, date):
        return in_utc(datetime.combine(value, time.max if end else time.min))
    raise TypeError(error)


def _parsed(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return datetime.fromisoformat(text)


# Messages and prompts


def prompt_budget(max_tokens: int, reserve_tokens: int, *, least: int = 1) -> int:
    """Return the tokens that a prompt may take.

    Args:
        max_tokens: the context limit.
        reserve_tokens: the part of it that is kept free for the reply.
        least: the smallest budget that makes sense.

    Raises:
        BudgetError: less than `least` is left for the prompt.
        ValueError: a number is no whole number, or too small.
    """
    budget = whole_number("max_tokens", max_tokens, least=1) - whole_number("reserve_tokens", reserve_tokens, least=0)
    if budget < least:
        raise BudgetError(
            f"max_tokens={max_tokens} is not larger than reserve_tokens={reserve_tokens}: nothing is left for the "
            "prompt; pass your model's context limit as max_tokens, or a smaller reserve_tokens",
            needed=least,
            available=budget,
        )
    return budget


def user_message(name: str, value: Any) -> Message:
    """Return a question as a user message, given as one or as a text.

    Raises:
        TypeError: it is something else.
        ValueError: it is a message of another role.
    """
    if isinstance(value, str):
        return Message.user(value)
    if not isinstance(value, Message | Mapping | BaseModel):
        advice = "; store a history with follow() or add()" if isinstance(value, list | tuple) else ""
        raise TypeError(f"{shown(name, value)}: expected a text or a user message{advice}")
    message = one_message(value)
    if message.role != "user":
        raise ValueError(f"{name}: expected a user message, not one of role {message.role!r}")
    return message


def schemas(tools: Any) -> tuple[Any, ...]:
    """Return tool schemas; TypeError if they are no list, such as a single schema."""
    if tools is None:
        return ()
    if isinstance(tools, str | Mapping) or not isinstance(tools, Iterable):
        raise TypeError(f"{shown('tools', tools)}: expected a list of tool schemas; put a single one in a list")
    return tuple(tools)


SystemPrompt = str | Callable[[], str | None]
"""A system prompt as a setting: its text, or a function that returns it for each question."""


def prompt_text(system: SystemPrompt | None) -> str:
    """Return the text of a system prompt; empty if there is none.

    Raises:
        TypeError: it is neither a text nor a function that returns one.
    """
    text = system() if callable(system) else system
    if text is not None and not isinstance(text, str):
        what = "its function returned" if callable(system) else "not"
        raise TypeError(f"system: pass a text or a function that returns one; {what} {text!r:.80}")
    return text if text is not None and text.strip() else ""


# Names of arguments

OTHER_NAMES = {
    "max_tokens": ("token_limit", "max_token_limit", "context_window", "context_length", "limit", "budget"),
    "token_limit": ("max_tokens", "max_token_limit", "context_window", "limit"),
    "embedder": ("embeddings", "embedding", "embed_model", "embedding_model"),
    "embeddings": ("embedder", "embed_model"),
    "embed_model": ("embedder", "embeddings"),
    "token_counter": ("tokenizer", "tokenizer_fn", "encoding", "length_function", "message_overhead", "model"),
    "tokenizer_fn": ("token_counter", "tokenizer"),
    "top_k": ("k", "n", "limit", "similarity_top_k", "n_results", "max_results"),
    "limit": ("k", "n", "top_k", "last", "max_results"),
    "query": ("question", "text", "q", "prompt"),
    "question": ("query", "text", "q", "prompt", "message", "user", "input"),
    "messages": ("message", "history", "user", "content", "text"),
    "ids": ("id", "message_id", "message_ids"),
    "store": ("path", "db", "db_path", "database", "file", "url", "uri", "storage", "connection_string", "durability"),
    "session_id": ("session", "thread_id", "conversation_id", "chat_id"),
    "user_id": ("user", "owner"),
    "summarizer": ("llm",),
    "recall_template": ("template", "summary_template", "excerpt_tokens"),
    "reranker": ("rerank_model", "rerank", "compressor", "base_compressor", "node_postprocessors", "cross_encoder"),
    "system": ("system_prompt", "system_message", "instructions"),
}
"""Names of arguments, with those that other libraries give to the same thing, best first."""

MOST_LISTED = 10
"""An error for an unknown argument lists those of a method that has at most so many."""


def suggestion(name: str, known: Collection[str]) -> str:
    """Return "; did you mean …?" for an unknown name of an argument; empty if none of the known names is near."""
    near = [one for one, others in OTHER_NAMES.items() if one in known and name in others]
    near = near or get_close_matches(name, sorted(known), n=1, cutoff=0.8)
    return f"; did you mean {near[0]!r}?" if near else ""


def check_names(method: Callable[..., Any], given: Sequence[Any], named: Mapping[str, Any]) -> None:
    """Raise a TypeError that suggests what to write if a call has an unknown argument, or too many without a name."""
    parameters = inspect.signature(method).parameters
    unknown = [name for name in named if name not in parameters]
    by_position = [name for name, one in parameters.items() if one.kind is not one.KEYWORD_ONLY and name != "self"]
    if not unknown and len(given) <= len(by_position):
        return
    call = method.__qualname__.removesuffix(".__init__").rpartition(".")[2]
    if unknown:
        near = suggestion(unknown[0], parameters)
        known = [name for name in parameters if name != "self"]
        takes = f"; it takes {', '.join(known)}" if 0 < len(known) <= MOST_LISTED else ""
        raise TypeError(f"{call}() has no argument {unknown[0]!r}{near or takes}")
    if call == "add" and len(given) == 2 and str(given[0]).lower() in ROLE_NAMES:
        raise TypeError(f"add() takes messages: write add({{'role': {given[0]!r}, 'content': {short(given[1])}}})")
    names = " and ".join(map(repr, by_position)) or "nothing"
    others = [name for name in parameters if name not in {*by_position, "self"}]
    example = f", for example {others[0]}={short(given[-1])}" if others else ""
    raise TypeError(f"{call}() takes {names} by position; name the other arguments{example}")


OTHER_METHODS = {
    "add": ("append", "extend", "insert", "save", "save_context", "put", "store_message"),
    "checkout": ("switch", "switch_branch"),
    "context": ("prompt", "build", "build_context", "get_context", "load_memory_variables"),
    "export": ("dump", "to_file"),
    "fork": ("create_branch", "new_branch"),
    "forget": ("delete", "remove", "erase"),
    "import_file": ("load", "restore", "from_file"),
    "index": ("reindex", "embed"),
    "messages": ("history", "get_messages", "get_all", "get_history"),
    "newest": ("last", "tail", "latest", "recent"),
    "rename_session": ("rename",),
    "rewind": ("clear", "restart", "new_session"),
    "search": ("query", "find", "retrieve", "recall", "similarity_search"),
    "stash": ("set_aside", "shelve"),
}
"""Methods of a memory, with the names that other libraries give to them."""


def missing_method(owner: object, name: str) -> AttributeError:
    """Return the error for a name that a memory does not have; it suggests one that it has."""
    known = [one for one in dir(type(owner)) if not one.startswith("_")]
    near = [one for one, others in OTHER_METHODS.items() if name in others]
    near = near or get_close_matches(name, known, n=1, cutoff=0.8)
    hint = f"; did you mean {near[0]!r}?" if near and not name.startswith("_") else ""
    return AttributeError(f"{type(owner).__name__} has no attribute {name!r}{hint}")


def suggests_names(method: Method) -> Method:
    """Return a method whose error for a wrong name of an argument suggests the right one, as newer Pythons do."""
    code = inspect.unwrap(method).__code__
    known = frozenset(code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount])
    most = code.co_argcount - 1

    @wraps(method)
    def checked(self: Any, *given: Any, **named: Any) -> Any:
        if len(given) > most or not known.issuperset(named):
            check_names(method, given, named)
        return method(self, *given, **named)

    return checked  # type: ignore[return-value]
