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

from shared_core.history.followed import FollowedHistory as FollowedHistory
from shared_core.prompt.context import Context as Context
from shared_core.prompt.hits import Hit as Hit
from shared_core.prompt.hits import Kind as Kind
from shared_core.prompt.hits import Reason as Reason
from shared_core.prompt.report import ContextReport as ContextReport
from shared_core.prompt.report import ReportLine as ReportLine
from shared_core.records import Branch as Branch
from shared_core.records import SessionInfo as SessionInfo
from shared_core.records import Summary as Summary
from shared_core.session.forget import ForgetResult as ForgetResult
from shared_core.sharing.importer import ImportResult as ImportResult
from shared_core.tree.copies import CherryPickResult as CherryPickResult
from shared_core.tree.copies import Stash as Stash
from shared_core.tree.log import Diff as Diff
from shared_core.tree.log import LogEntry as LogEntry
from shared_core.tree.log import ReflogEntry as ReflogEntry
from shared_core.tree.merge import Conflict as Conflict
from shared_core.tree.merge import MergeResult as MergeResult
