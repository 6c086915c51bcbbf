"""Attention of one layer on every rank, for each trace: the blocks that it computes, and those that travel at the same time."""

from matplotlib.patches import Patch

from chart import COLOURS, PAPER, WORK, Chart, new_figure, time_text

KEYS, GRADIENTS = "keys and values", "gradients of keys and values"
EXCHANGES = {KEYS: "#555555", GRADIENTS: "#8c6d31"}
LETTER, DRAWN_POINTS = 6, 330  # points: the width of a number, and of a panel
MOST_TRACES = 4
LEGEND = 0.55  # inches


def charts(results):
    """One chart of all traces whose ranks attend to blocks."""
    traces = [found for found in map(_calls_of, results.traces, results.trace_names()) if found][:MOST_TRACES]
    if not traces:
        return []
    ranks = max(len(calls["forward"]) for _, calls in traces)
    height = 0.6 + len(traces) * (0.5 + 0.42 * ranks)
    figure = new_figure(width=11, height=height + LEGEND)
    above, body = figure.subfigures(2, 1, height_ratios=[LEGEND, height])
    panels = body.subplots(len(traces), 2, sharex="col", squeeze=False, width_ratios=[1, 2])
    rows, said = [], []
    for line, (name, calls) in zip(panels, traces):
        for axes, (direction, by_rank) in zip(line, calls.items()):
            begin, end = _bounds(by_rank)
            for rank, spans in by_rank.items():
                rows += _draw_rank(axes, rank, spans, begin, 1.0 * (end - begin), (name, direction))
            axes.set_yticks(list(by_rank), [f"rank {rank}" for rank in by_rank])
            axes.set_ylim(max(by_rank) + 0.55, -0.55)
            axes.grid(axis="y", visible=False)
            axes.set_title(f"{name}, {direction}: {time_text(end - begin)}", loc="left", fontsize=10)
            said.append(f"{name}, {direction}: {time_text(end - begin)}, of which waiting, on average, "
                        f"{100 * _waiting(by_rank) / (end - begin):.0f} %")
    for axes in panels[-1]:
        axes.set_xlabel("microseconds")
    handles = [Patch(color=COLOURS[rank % len(COLOURS)], label=f"block of rank {rank}") for rank in range(ranks)]
    handles += [Patch(color=WORK["wait"], label="waiting")]
    handles += [Patch(color=colour, label=f"exchange: {label}") for label, colour in EXCHANGES.items()]
    above.legend(handles=handles, loc="upper left", ncols=4)
    return [Chart(
        title="Attention of one layer on every rank",
        explanation="In each rank's upper row, attention to the keys of one rank after another; in the lower one, the keys, values and "
                    "gradients that travel at the same time. A ring moves on when the slowest rank is done: grey is waiting.",
        alt="Attention of one layer: " + "; ".join(said) + ".",
        figure=figure,
        columns=("trace", "direction", "rank", "what", "begin µs", "duration µs"),
        rows=rows)]


def _calls_of(trace, name):
    """(name, {direction: {rank: spans of one call}}) of the typical step; None without blocks. Shows the middle layer's calls."""
    spans = [event for event in trace.events if event["ph"] == "X"]
    steps = [span for span in spans if span.get("cat") == "step"]
    if not steps or not any(span.get("cat") == "attention" for span in spans):
        return None
    typical = trace.typical_step()
    found = {"forward": {}, "backward": {}}
    for step in sorted((span for span in steps if span["name"] == typical), key=lambda span: span["pid"]):
        end = step["ts"] + step["dur"]
        own = sorted((span for span in spans if span["pid"] == step["pid"] and step["ts"] <= span["ts"] <= end),
                     key=lambda span: span["ts"])
        calls = _calls([span for span in own if span.get("cat") == "attention"])
        by_direction = {"forward": [], "backward": []}
        # A call's first exchange of keys may begin just before its first block, and its last one of gradients after its last block.
        after = step["ts"]
        for call, following in zip(calls, [*calls[1:], None]):
            until = following[0]["ts"] if following else end
            keys = _named(own, KEYS, after, _end(call[-1]))
            gradients, waits = (_named(own, name, call[0]["ts"], until) for name in (GRADIENTS, "wait for other tokens"))
            after = _end(call[-1])
            by_direction["backward" if gradients else "forward"].append(call + keys + gradients + waits)
        if not all(by_direction.values()):
            return None
        for direction, all_calls in by_direction.items():
            found[direction][step["pid"]] = all_calls[len(all_calls) // 2]
    return name, found


def _calls(blocks):
    """Each call attends to every block once."""
    count = len({span["name"] for span in blocks})
    return [blocks[first:first + count] for first in range(0, len(blocks), count)]


def _end(span):
    return span["ts"] + span["dur"]


def _named(spans, name, begin, end):
    return [span for span in spans if span["name"] == name and begin <= span["ts"] < end]


def _bounds(by_rank):
    return (min(span["ts"] for spans in by_rank.values() for span in spans),
            max(span["ts"] + span["dur"] for spans in by_rank.values() for span in spans))


def _waiting(by_rank):
    """The ranks' mean."""
    return sum(span["dur"] for spans in by_rank.values() for span in spans if span["cat"] == "wait") / len(by_rank)


def _draw_rank(axes, rank, spans, begin, duration, labels):
    rows = []
    for kind in ("attention", "wait", "exchange"):
        for span in (span for span in spans if span["cat"] == kind):
            block = int(span["name"].split()[1]) if kind == "attention" else None
            colour = COLOURS[block % len(COLOURS)] if kind == "attention" else WORK["wait"] if kind == "wait" else EXCHANGES[span["name"]]
            place = (rank + 0.12, 0.28) if kind == "exchange" else (rank - 0.4, 0.5)
            axes.broken_barh([(span["ts"] - begin, span["dur"])], place, facecolors=colour, edgecolor=PAPER, linewidth=0.3)
            if block is not None and LETTER < DRAWN_POINTS * span["dur"] / duration:
                axes.text(span["ts"] - begin + span["dur"] / 2, rank - 0.15, str(block), fontsize=7, color="white", ha="center",
                          va="center_baseline").set_in_layout(False)
            rows.append((*labels, rank, span["name"], f"{span['ts'] - begin:.3f}", f"{span['dur']:.3f}"))
    return rows
