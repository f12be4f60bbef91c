"""The overview that the page opens on: its title, the branches and the sittings."""

from collections.abc import Mapping, Sequence, Set
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any

from shared_core.index.lines import SITTING_GAP

TITLE = 80
"""Characters of a title, as many as fit into a heading of two lines on a phone."""

LINES = 6
"""The most branches that are drawn; those on which something was said last, and the first one."""

MERGES = 12
"""The most merges and summaries that are drawn, the newest."""

Node = Mapping[str, Any]


def overview(nodes: Sequence[Node], heads: Sequence[int | None]) -> dict[str, Any]:
    """Return the data of the overview.

    Args:
        nodes: all messages and merges, oldest first.
        heads: the row of the last node of each branch. None: the branch is empty.
    """
    return {"title": title(nodes), "sittings": sittings(nodes), "lines": lines(nodes, heads)}


def title(nodes: Sequence[Node]) -> str | None:
    """Return the beginning of the first question on one line, None if nothing was asked."""
    for node in nodes:
        if node["role"] == "user" and (text := one_line(node.get("text", ""))):
            return text
    return None


def one_line(text: str) -> str:
    """Return the beginning of a text on one line, cut after a word if one ends late enough."""
    line = " ".join(text[: 8 * TITLE].split())
    if len(line) <= TITLE:
        return line
    cut = line[: TITLE - 1]
    words = cut.rpartition(" ")[0]
    return (words if len(words) > TITLE // 2 else cut).rstrip(" ,;:.-") + "…"


def sittings(nodes: Sequence[Node]) -> list[dict[str, Any]]:
    """Return the runs of messages without a pause of six hours, oldest first, on whichever branches they are."""
    found: list[list[int]] = []
    last = None
    for row in _by_time(nodes):
        now = _time(nodes[row])
        if last is None or (now - last).total_seconds() > SITTING_GAP:
            found.append([])
        found[-1].append(row)
        last = now
    return [_sitting(nodes, rows) for rows in found]


def _sitting(nodes: Sequence[Node], rows: Sequence[int]) -> dict[str, Any]:
    asked = [row for row in rows if nodes[row]["role"] == "user"]
    texts = (one_line(nodes[row].get("text", "")) for row in (*asked, *rows))
    return {
        "row": (asked or rows)[0],
        "messages": len(rows),
        "questions": len(asked),
        "start": nodes[rows[0]]["at"],
        "end": nodes[rows[-1]]["at"],
        "title": next(filter(None, texts), ""),
    }


def _by_time(nodes: Sequence[Node]) -> list[int]:
    """Return the rows of the messages in the order of their times, those of equal times as they are."""
    rows = [row for row, node in enumerate(nodes) if node["role"] != "merge" and "at" in node]
    return sorted(rows, key=lambda row: _time(nodes[row]))


def _time(node: Node) -> datetime:
    return datetime.fromisoformat(node["at"]).astimezone(UTC)


def lines(nodes: Sequence[Node], heads: Sequence[int | None]) -> dict[str, Any]:
    """Return the branches as lines between the rows where something forks, joins or ends.

    Returns:
        `stops`: these rows in order.
        `lines`: for each branch that is drawn its number `branch`, its number of `own` messages, the row it is forked
        `from` (None: it has a root), and the rows of its `start` and `end`. The first branch comes first, then the
        others, the latest fork first, so that few lines cross.
        `joins`: `[row, row, "merge" or "summary"]` of what was brought into another line.
        `more`: the number of branches that are not drawn.
    """
    there = [branch for branch, head in enumerate(heads) if head is not None]
    latest = sorted(there[1:], key=lambda branch: heads[branch] or 0, reverse=True)
    shown = {*there[:1], *latest[: LINES - 1]}
    drawn = [_branch_line(nodes, branch, heads[branch] or 0, shown) for branch in sorted(shown)]
    drawn.sort(key=lambda line: (line["branch"] != there[0], -1 if line["from"] is None else -line["from"]))
    joins = _joins(nodes, shown)
    stops = {row for line in drawn for row in (line["start"] if line["from"] is None else line["from"], line["end"])}
    stops |= {row for source, target, _ in joins for row in (source, target)}
    return {
        "stops": sorted(stops),
        "lines": drawn,
        "joins": joins,
        "more": len(there) - len(shown),
    }


def _branch_line(nodes: Sequence[Node], branch: int, head: int, shown: Set[int]) -> dict[str, Any]:
    own = [row for row, node in enumerate(nodes) if node["owner"] == branch]
    start = own[0] if own else head
    before = _parent(nodes, start) if own else head
    while before is not None and nodes[before]["owner"] not in shown:
        before = _parent(nodes, before)
    messages = sum(nodes[row]["role"] != "merge" for row in own)
    return {"branch": branch, "own": messages, "from": before, "start": start, "end": head}


def _parent(nodes: Sequence[Node], row: int) -> int | None:
    parents: Sequence[int] = nodes[row]["parents"]
    return parents[0] if parents else None


def _joins(nodes: Sequence[Node], shown: Set[int]) -> list[list[Any]]:
    """Return what merges and summaries brought into another line, the newest of them, oldest first.

    The question and the answer of a squash sum up the same messages: they are one line, to the answer.
    """
    found: dict[tuple[int, str, int], int] = {}
    for row, node in enumerate(nodes):
        sources = [(parent, "merge") for parent in node["parents"][1:]]
        sources += [(covered, "summary") for covered in node.get("sums", [])[-1:]]
        for source, how in sources:
            owners = nodes[source]["owner"], node["owner"]
            if owners[0] != owners[1] and shown >= {*owners}:
                found[source, how, owners[1]] = row
    joins = [[source, row, how] for (source, how, _), row in found.items()]
    return sorted(joins, key=itemgetter(1))[-MERGES:]
