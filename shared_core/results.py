"""The values that a memory's verbs return, in one place to import them from.

context                               Context, with its ContextReport of ReportLines: Kind, Reason
search                                Hit
sessions                              SessionInfo
follow, forget, summary               FollowedHistory, ForgetResult, Summary
branches, tags, log, reflog, diff     Branch, LogEntry, ReflogEntry, Diff
merge                                 MergeResult, with its Conflicts
cherry_pick, rebase, stash            CherryPickResult, Stash
import_file                           ImportResult
"""

from shared_core.history.followed import FollowedHistory
from shared_core.prompt.context import Context, ContextReport, ReportLine
from shared_core.prompt.hits import Hit
from shared_core.prompt.reasons import Kind, Reason
from shared_core.records import Branch, SessionInfo, Summary
from shared_core.session.forget import ForgetResult
from shared_core.sharing.importer import ImportResult
from shared_core.tree.branches import Diff, ReflogEntry
from shared_core.tree.copies import CherryPickResult, Stash
from shared_core.tree.log import LogEntry
from shared_core.tree.merge import Conflict, MergeResult

__all__ = [
    "Branch",
    "CherryPickResult",
    "Conflict",
    "Context",
    "ContextReport",
    "Diff",
    "FollowedHistory",
    "ForgetResult",
    "Hit",
    "ImportResult",
    "Kind",
    "LogEntry",
    "MergeResult",
    "Reason",
    "ReflogEntry",
    "ReportLine",
    "SessionInfo",
    "Stash",
    "Summary",
]
