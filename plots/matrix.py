"""Bytes sent from each rank to each other: in a training step, or in a call of each collective of a benchmark."""

import textwrap
from dataclasses import dataclass

from chart import Chart, bytes_text, new_figure

MOST_PANELS = 6
MOST_RANKS_WITH_NUMBERS = 8
BOOKKEEPING = "report"  # the label of what the program itself exchanges about a run; results do not count it


@dataclass(frozen=True)
class Message:
    """A message as its sender recorded it. Ranks are those of the world."""
    source: int
    target: int
    number: int  # of the messages from this rank to that one, in this group
    group: tuple
    operation: str
    operation_bytes: int
    label: str
    bytes: int
    address: int  # of its data


def charts(results):
    names = results.trace_names() if len(results.traces) > 1 else [""]
    return [chart for trace, name in zip(results.traces, names) if (chart := chart_of(trace, name))]


def is_training(trace):
    return any(event.get("cat") == "step" for event in trace.events)


def messages(trace):
    """The messages of the last training step, or of the whole benchmark. Where ranks take no common steps, as
    with asynchronous workers, all messages of the run, also those that share the first and the last weights."""
    ranks = 1 + max((event["pid"] for event in trace.events), default=-1)
    by_rank = [[] for _ in range(ranks)]
    for event in trace.events:
        by_rank[event["pid"]].append(event)
    stepped = [_of_last_step(events) for events in by_rank]
    chosen = stepped if all(found is not None for found in stepped) else [_sent(events) for events in by_rank]
    found = [_message(event, ranks) for sent in chosen for event in sent]
    return [message for message in found if message.source != message.target and message.label != BOOKKEEPING]


def _sent(events):
    return [event for event in events if event["ph"] == "s" and "label" in event.get("args", {})]


def _of_last_step(events):
    """A rank's messages of its last step; None without a step. Its events are in the order in which they ended, also where
    no time passes: a step's own event follows those of its messages."""
    chosen, before = None, []
    for event in events:
        before.append(event)
        if event["ph"] != "X":
            continue
        if event.get("cat") == "step":
            chosen = [sent for sent in _sent(before) if sent["ts"] >= event["ts"]]
        if event.get("cat") == "step" or event["name"] == "validation":
            before = []
    return chosen


def _message(event, ranks):
    path, pair, number = event["id"].rsplit(":", 2)
    source, target = map(int, pair.split(">"))
    members = _members(path, ranks)
    args = event["args"]
    return Message(members[source], members[target], int(number), tuple(sorted(set(members))), args["operation"],
                   args["operation_bytes"], args["label"], args["bytes"], args["address"])


def _members(path, ranks):
    """The world's ranks of a group: "world/0,2,4#1/1,2#0" is its members 1 and 2 of the group of 0, 2 and 4."""
    members = list(range(ranks))
    for part in path.split("/")[1:]:
        if part.startswith("two ends"):
            members = members * 2  # the second ends of the same ranks
        else:
            members = [members[int(place)] for place in part.split("#")[0].split(",")]
    return members


def panels(trace):
    """[(title, {(from, to): (messages, bytes)})], most bytes first. Of a training: a panel for each axis of groups, alike but
    for their first rank. Of a benchmark: a panel for each operation and size, for one call."""
    found = messages(trace)
    training = is_training(trace)
    parts = {}
    for message in found:
        shape = tuple(rank - message.group[0] for rank in message.group)
        parts.setdefault(shape if training else (message.operation, message.operation_bytes), []).append(message)
    result = []
    for key, own in parts.items():
        calls = 1 if training else _calls(trace, *key)
        pairs = {}
        for message in own:
            pair = pairs.setdefault((message.source, message.target), [0, 0])
            pair[0] += 1
            pair[1] += message.bytes
        title = _groups_title(own) if training else key[0] + (f" of {bytes_text(key[1])}" if key[1] else "")
        result.append((title, {pair: (count / calls, total / calls) for pair, (count, total) in sorted(pairs.items())}))
    return sorted(result, key=lambda panel: -sum(total for _, total in panel[1].values()))


def _groups_title(own):
    groups = sorted({message.group for message in own})
    labels = ", ".join(sorted({message.label for message in own}))
    ranks = " ".join(map(str, groups[0])) if len(groups[0]) <= 4 else f"{groups[0][0]} to {groups[0][-1]}"
    return f"{labels}; " + (f"ranks {ranks}" if len(groups) == 1 else f"{len(groups)} groups, as ranks {ranks}")


def _calls(trace, operation, size):
    """How often a rank called the operation with this size; messages between collectives count as one call."""
    counts = {}
    for event in trace.events:
        if event["ph"] == "X" and event.get("cat") == "communication" and (event["name"], event["args"]["bytes"]) == (operation, size):
            counts[event["pid"]] = counts.get(event["pid"], 0) + 1
    return max(counts.values(), default=1)


def chart_of(trace, name=""):
    """The chart of a trace; None if its ranks exchange no message."""
    found = panels(trace)
    chosen = found[:MOST_PANELS]
    if not chosen:
        return None
    ranks = 1 + max(rank for _, pairs in found for pair in pairs for rank in pair)
    columns = min(3, len(chosen))
    lines = -(-len(chosen) // columns)
    figure = new_figure(width=3.4 * columns + 0.6, height=3.5 * lines + 0.3)
    rows = []
    for place, (title, pairs) in enumerate(chosen):
        axes = figure.add_subplot(lines, columns, place + 1)
        draw_cells(figure, axes, pairs, ranks)
        axes.set_title("\n".join(textwrap.fill(part, 40) for part in title.split("; ")), fontsize=9)
    for title, pairs in found:
        rows += [(title, source, target, f"{count:g}", f"{total:.0f}")
                 for (source, target), (count, total) in pairs.items()]
    unit = "step" if is_training(trace) else "call"
    busiest = ", ".join("{}: {:.0f} bytes".format(title, max(_sums(pairs, 0))) for title, pairs in chosen)
    return Chart(
        title="Messages between ranks" + (f": {name}" if name else ""),
        explanation=f"Bytes that each rank (row) sends to each other (column) in a {unit}. A ring is a diagonal, a tree a few "
                    "cells, a parameter server a row and a column, an all-to-all exchange a full square. Direct reads of "
                    "another rank's memory do not count as messages.",
        alt=f"Messages between ranks. Most that one rank sends in a {unit}: {busiest}.",
        figure=figure,
        columns=("operation" if unit == "call" else "what, and its groups", "from rank", "to rank", "messages", "bytes"),
        rows=rows)


def _sums(pairs, end):
    sums = {}
    for pair, (_, total) in pairs.items():
        sums[pair[end]] = sums.get(pair[end], 0) + total
    return sums.values()


def draw_cells(figure, axes, pairs, ranks):
    """A panel: `pairs` are {(from, to): (messages, bytes)}."""
    cells = [[pairs.get((source, target), (0, 0))[1] or float("nan") for target in range(ranks)] for source in range(ranks)]
    most = max(total for _, total in pairs.values())
    image = axes.imshow(cells, cmap="Blues", vmin=0, vmax=most * 1.3)
    if ranks <= MOST_RANKS_WITH_NUMBERS:
        for (source, target), (_, total) in pairs.items():
            axes.text(target, source, bytes_text(round(total)).replace(" ", "\n"), ha="center", va="center", fontsize=7,
                      color="white" if total > 0.7 * most * 1.3 else "black")
        axes.set_xticks(range(ranks))
        axes.set_yticks(range(ranks))
    else:
        bar = figure.colorbar(image, ax=axes, shrink=0.8)
        bar.ax.yaxis.set_major_formatter(lambda count, _: bytes_text(count))
    axes.grid(visible=False)
    axes.set_xlabel("to rank")
    axes.set_ylabel("from rank")
