"""How fast the calls of a load were."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from tests.load.journal import Call


def quantile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of them do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * int(share * 100) // 100) - 1)]


def table(calls: Sequence[Call], title: str) -> str:
    """Return a line of totals, and one a verb: calls a second, and the median and 95th percentile in milliseconds."""
    taken: dict[str, list[float]] = defaultdict(list)
    for call in calls:
        if call.outcome == "done":
            taken[call.verb].append(call.took * 1_000)
    seconds = (max(call.ended or call.began for call in calls) - calls[0].began) / 1e9
    ends = Counter(call.outcome for call in calls)
    lines = [f"{title}, {seconds:.1f} s; " + ", ".join(f"{count} {end}" for end, count in ends.most_common())]
    for verb, times in sorted(taken.items(), key=lambda one: -len(one[1])):
        p50, p95 = quantile(times, 0.5), quantile(times, 0.95)
        lines.append(f"  {verb:<9}{len(times) / seconds:7.1f}/s   p50 {p50:7.1f} ms   p95 {p95:7.1f} ms")
    return "\n".join(lines)
