"""The tools that write: remember, fork, merge and forget."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from shared_core.display import counted
from shared_core.doors.mcp_server.conversations import Conversations, standing_at
from shared_core.doors.mcp_server.fenced_records import Said, pack, quoted_name, said_in
from shared_core.doors.mcp_server.limits import NAME, BranchName, MaxTokens, MessageId, Reference, SessionName, When
from shared_core.doors.mcp_server.read_tools import branch_names, with_notes
from shared_core.doors.mcp_server.tool_results import (
    Conflict,
    ForgetAnswer,
    Forgotten,
    ForkAnswer,
    Forked,
    MergeAnswer,
    Merged,
    RememberAnswer,
    Remembered,
    answer,
    records_of,
)
from shared_core.doors.serving.confirmation import Confirmations
from shared_core.errors import AmbiguousReferenceError, StoreError, StoreUnavailableError, UnknownReferenceError
from shared_core.memory import InfiniteMemory
from shared_core.messages import Message
from shared_core.records import MAIN
from shared_core.tree.merge import How

__all__ = ["WriteTools"]

LISTED = 20
"""The most messages that a dry run of `forget` shows, and the most contradictions that `merge` lists."""

PREVIEW_TOKENS = 60
"""The tokens of a message that `forget` shows."""

NAMES_TOKENS = 1_000
"""The most tokens of the names of branches that `fork` lists."""


class NewMessage(BaseModel):
    """A message to store."""

    text: Annotated[str, Field(min_length=1, max_length=200_000)]
    role: Literal["user", "assistant"] = "user"
    name: Annotated[str | None, Field(max_length=NAME, description="The speaker, if several share a role.")] = None


class WriteTools:
    """The tools that change a conversation. Nothing is erased without the confirmation that a dry run gives.

    Args:
        conversations: lends the memories of the user who calls.
    """

    def __init__(self, conversations: Conversations) -> None:
        self._conversations = conversations
        self._confirmations = Confirmations()

    def remember(
        self,
        messages: Annotated[list[NewMessage], Field(min_length=1, max_length=100, description="Oldest first.")],
        session: SessionName = None, branch: BranchName = None,
    ) -> RememberAnswer:  # fmt: skip
        """Store messages for good at the end of a branch: what the user said, and what was answered.

        A session begins with its first message. Calling it twice stores them twice.
        """
        new = [Message(role=one.role, content=one.text, name=one.name) for one in messages]
        with self._conversations.writing(session, branch) as memory:
            ids = [message.id or "" for message in memory.add(new)]
            data = Remembered(session=memory.session_id, branch=memory.branch or MAIN, ids=ids)
            stored = (
                f"stored {counted(len(ids), 'message')} in {standing_at(memory)}: {', '.join(map(quoted_name, ids))}"
            )
        return answer(data, stored)

    def fork(
        self,
        name: Annotated[str, Field(min_length=1, max_length=NAME, description="The name of the new branch.")],
        at: Annotated[Reference | None, Field(description="The last shared message; left out: the end.")] = None,
        session: SessionName = None, branch: BranchName = None,
    ) -> ForkAnswer:  # fmt: skip
        """Create a branch. What is said on it later is not seen from other branches.

        Pass its name as branch to work on it; merge brings it back.
        """
        with self._conversations.reading(session, branch) as memory:
            memory.fork(name, at)
            newest, branches = memory.newest(1), memory.branches()
            names, notes = branch_names((one.name for one in branches), NAMES_TOKENS, self._conversations.counter)
            data = Forked(
                session=memory.session_id, branch=name, at=newest[0].id if newest else None, branches=names, notes=notes
            )
            text = f"created the branch in {standing_at(memory)}; pass branch='{quoted_name(name)}' to work on it"
        return answer(data, with_notes(text, notes))

    def merge(
        self,
        source: Annotated[Reference, Field(description="The branch to merge.")],
        into: Annotated[BranchName, Field(description="The branch that receives it; left out: main.")] = None,
        how: Annotated[How, Field(description="three-way lists contradictions; squash adds a summary.")] = "auto",
        session: SessionName = None, max_tokens: MaxTokens = 2_000,
    ) -> MergeAnswer:  # fmt: skip
        """Merge a branch into another one. The source stays; merging again does nothing."""
        with self._conversations.reading(session, into) as memory:
            result = memory.merge(source, how)
            said = [said_in(one, memory.session_id, order=order) for order, one in enumerate(result.messages)]
            target, home = memory.branch or MAIN, memory.session_id
        packed = pack(said[::-1], max_tokens, self._conversations.counter)
        notes = [f"{packed.left_out} did not fit in max_tokens={max_tokens}"] if packed.left_out else []
        if len(result.conflicts) > LISTED:
            notes.append(f"{len(result.conflicts) - LISTED} more contradictions: the merge's answer lists them")
        conflicts = [
            Conflict(about=quoted_name(one.about), ours=list(one.ours), theirs=list(one.theirs))
            for one in result.conflicts[:LISTED]
        ]
        data = Merged(
            session=home, how=result.how, source=source, into=target, conflicts=conflicts, notes=notes,
            records=records_of(packed), tokens=packed.tokens, left_out=packed.left_out,
        )  # fmt: skip
        done = f"merged '{quoted_name(source)}' into '{quoted_name(target)}' ({result.how})"
        if result.how == "nothing":
            done = f"nothing to merge: '{quoted_name(target)}' already has all of '{quoted_name(source)}'"
        return answer(data, with_notes("\n".join(filter(None, [done, packed.text])), notes))

    def forget(
        self,
        ids: Annotated[list[MessageId] | None, Field(min_length=1, max_length=200)] = None,
        before: When = None,
        whole_session: Annotated[bool, Field(description="Erase all of the session, with its branches.")] = False,
        confirmation: Annotated[
            str | None, Field(max_length=NAME, description="What the dry run gave. Without it nothing is erased.")
        ] = None,
        session: SessionName = None,
    ) -> ForgetAnswer:  # fmt: skip
        """Erase messages for good, on all branches. Without a confirmation it is a dry run, which erases nothing.

        The dry run shows what would be erased and gives the confirmation. Show it to the user before you pass it. Name
        exactly one of ids, before and whole_session.
        """
        if (ids is not None) + (before is not None) + whole_session != 1:
            raise ValueError("name exactly one of ids, before and whole_session")
        with self._conversations.reading(session) as memory:
            which = _which(memory, ids, before)
            shown = memory.forget(**which, dry_run=True).ids
            what = "session" if whole_session else "messages"
            signed = (memory.user_id, memory.session_id, what, shown)
            if confirmation is None:
                return self._dry_run(memory, shown, self._confirmations.of(*signed))
            if not shown or not self._confirmations.fits(confirmation, *signed):
                raise ValueError(
                    "nothing was erased: the confirmation is not for what this call would erase now; "
                    "call it without confirmation, look at what it shows, and pass what it gives"
                )
            # By their ids, so that what came in meanwhile stays; a whole session has no such limit.
            result = memory.forget(**(which if whole_session else {"ids": list(shown)}))
            data = Forgotten(
                session=memory.session_id, dry_run=False, messages=len(result.ids), scrubbed=result.scrubbed,
                records=[], tokens=0, notes=[result.reason] if result.reason else [],
            )  # fmt: skip
        return answer(data, with_notes(f"erased {counted(len(result.ids), 'message')} for good", data.notes))

    def _dry_run(self, memory: InfiniteMemory, ids: Sequence[str], confirmation: str) -> ForgetAnswer:
        said = [_preview(memory, id, order) for order, id in enumerate(ids[:LISTED])]
        most = (LISTED + 1) * 2 * PREVIEW_TOKENS
        packed = pack(said, most, self._conversations.counter, most_each=PREVIEW_TOKENS)
        more = len(ids) - len(packed.said)
        notes = [f"{counted(more, 'more message')} would be erased, which are not shown"] if more else []
        data = Forgotten(
            session=memory.session_id, dry_run=True, messages=len(ids), confirmation=confirmation if ids else None,
            records=records_of(packed), tokens=packed.tokens, left_out=more, notes=notes,
        )  # fmt: skip
        text = f"dry run: nothing was erased; {counted(len(ids), 'message')} would be\n{packed.text}".rstrip()
        go_on = [f"to erase them for good, call again with confirmation={confirmation}"] if ids else []
        return answer(data, with_notes(text, [*notes, *go_on]))


def _which(memory: InfiniteMemory, ids: Sequence[str] | None, before: str | None) -> dict[str, Any]:
    """Return the arguments of `forget`."""
    if ids is not None:
        return {"ids": [_whole_id(memory, id) for id in ids]}
    return {"before": before} if before is not None else {"session": True}


def _whole_id(memory: InfiniteMemory, id: str) -> str:
    """Return the id that begins so; UnknownReferenceError if there is none, or several do."""
    try:
        return memory.get(id).id or id
    except UnknownReferenceError:
        beginning = _newest_at(memory, id)
        if beginning is None or not beginning.startswith(id):
            raise  # nothing has the name, or a branch or a tag has
        return beginning


def _newest_at(memory: InfiniteMemory, reference: str) -> str | None:
    try:
        newest = memory.newest_at(reference)
    except AmbiguousReferenceError:
        raise
    except UnknownReferenceError:
        return None
    return newest.id if newest is not None else None


def _preview(memory: InfiniteMemory, id: str, order: int) -> Said:
    try:
        return said_in(memory.get(id), memory.session_id, order=order)
    except StoreUnavailableError:
        raise
    except StoreError:
        damaged = Message.user("(damaged: its text cannot be read)", id=id)
        return said_in(damaged, memory.session_id, order=order)
