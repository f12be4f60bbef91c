"""The arguments that tools share, with the limits of each."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from shared_core.formats.fields import Role

__all__ = [
    "MOST_BRANCHES",
    "BranchName",
    "MaxTokens",
    "MessageId",
    "Question",
    "Reference",
    "RoleName",
    "Scope",
    "SessionName",
    "When",
]

MOST_BRANCHES = 50
"""The most names of branches that an answer lists."""

NAME = 200
"""The longest name, in characters."""

SessionName: TypeAlias = Annotated[
    str | None,
    Field(min_length=1, max_length=NAME, description="The conversation; left out: the server's own, or 'default'."),
]
BranchName: TypeAlias = Annotated[
    str | None,
    Field(min_length=1, max_length=NAME, description="The branch of the conversation; left out: main."),
]
Reference: TypeAlias = Annotated[
    str,
    Field(min_length=1, max_length=NAME, description="A branch, a tag, a message's id or the beginning of one."),
]
MessageId: TypeAlias = Annotated[
    str, Field(min_length=1, max_length=NAME, description="The id of a message, or its first 4 or more characters.")
]
Question: TypeAlias = Annotated[str, Field(min_length=1, max_length=20_000)]
When: TypeAlias = Annotated[
    str | None, Field(max_length=40, description="ISO 8601, such as 2026-01-31 or 2026-01-31T10:00 (UTC).")
]
RoleName: TypeAlias = Annotated[
    Role | None,
    Field(description="Only messages of this role; left out: of users and assistants."),
]
Scope: TypeAlias = Annotated[
    Literal["session", "user"],
    Field(description="session: this conversation, on the branch; user: all conversations of the user as well."),
]
MaxTokens: TypeAlias = Annotated[
    int, Field(ge=100, le=20_000, description="The most tokens of the answer's text. What does not fit is counted.")
]
