"""A tree that is written a page of messages at a time: its segments, each as long as the messages so far need it."""

from collections.abc import Collection, Mapping, Sequence

from shared_core.records import Record, Segment


def segments_for(
    records: Sequence[Record], segments: Mapping[int, Segment], known: dict[int, int]
) -> tuple[Segment, ...]:
    """Return the segments that messages need, and note their tips, each only as long as it has to be.

    Args:
        records: the messages.
        segments: all that there are.
        known: segment -> its tip in the target; it is brought up to date.
    """
    tips: dict[int, int] = {}
    waiting = [record.position for record in records]
    while waiting:
        number, depth = waiting.pop()
        if depth <= known.get(number, -2) or depth <= tips.get(number, -2):
            continue
        segment = segments[number]
        if number not in known and number not in tips:
            waiting += [parent for parent in (segment.parent, segment.merged) if parent is not None]
        tips[number] = depth
    known |= tips
    return tuple(segments[number]._replace(tip=tips[number]) for number in parents_first(tips, segments))


def parents_first(numbers: Collection[int], segments: Mapping[int, Segment]) -> list[int]:
    """Return numbers of segments in an order in which each comes after those that it grows out of."""
    done: dict[int, None] = {}
    for number in sorted(numbers):
        stack = [number]
        while stack:
            parents = (segments[stack[-1]].parent, segments[stack[-1]].merged)
            ahead = [one.segment for one in parents if one is not None and one.segment in numbers]
            ahead = [one for one in ahead if one not in done]
            if ahead:
                stack += ahead
            else:
                done[stack.pop()] = None
    return list(done)
