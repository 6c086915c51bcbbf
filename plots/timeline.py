"""One typical training step of a trace, the one with the median time, or the last call of each collective of a benchmark: a row for each stream of each rank."""

import re

from matplotlib.patches import Patch

from chart import COLOURS, INK, PAPER, WORK, Chart, bytes_text, legend_above, new_figure, time_text

# Drawn in this order, later ones on top.
CATEGORIES = {"compute": "#d8d2c4", **{kind: WORK[kind] for kind in (
    "forward", "backward", "input gradient", "weight gradient", "optimizer", "wait")}, "exchange": "#7f7f7f",
    "communication": WORK["communication"]}
ACTION = re.compile(r"\d+([FBIW])(\d+)")  # "1F0": stage, pass, micro-batch
LETTER, DRAWN_POINTS = 4, 480  # points: the width of a small letter, and of the drawn step


# By the first word of the names of a message's spans.
PARTS = {"send": COLOURS[0], "receive": COLOURS[5], "reduce": COLOURS[2], "copy": COLOURS[3], "wait": WORK["wait"]}
MOST_PANELS, MOST_ARROWS = 6, 200


def charts(results):
    names = results.trace_names() if len(results.traces) > 1 else [""]
    return [chart for trace, name in zip(results.traces, names) for chart in _charts_of(trace, name)]


def last_calls(trace):
    """{collective: (its bytes, {rank: span of its last call})} of the benchmark's largest size. Without the barriers and
    measurements of links between the measured calls, unless there is nothing else."""
    calls = {}
    for event in trace.events:
        if event["ph"] == "X" and event.get("cat") == "communication":
            calls.setdefault((event["name"], event["args"]["bytes"]), {})[event["pid"]] = event
    own = {key: spans for key, spans in calls.items() if not key[0].startswith(("barrier/", "send_recv/"))} or calls
    largest = max((size for _, size in own), default=0)
    return {name: (size, spans) for (name, size), spans in own.items() if size == largest}


def _charts_of(trace, name):
    spans = [event for event in trace.events if event["ph"] == "X"]
    typical = trace.typical_step()
    if typical is None:
        return _collective_charts(trace, name)
    begin, end = trace.steps()[typical]
    title = f"Timeline of the median of {len(trace.steps())} steps" if len(trace.steps()) > 1 else "Timeline of a step"
    names = {(event["pid"], event.get("tid")): event["args"]["name"] for event in trace.events
             if event["ph"] == "M" and event["name"] == "thread_name"}

    # The communication that reports the loss follows the step and is excluded.
    inside = [span for span in spans if span.get("cat") in CATEGORIES and span["ts"] >= begin and
              span["ts"] + span["dur"] <= end]
    tracks = sorted({(span["pid"], span["tid"]) for span in inside})
    figure = new_figure(height=1.4 + 0.42 * len(tracks))
    axes = figure.subplots()
    rows = []
    for place, track in enumerate(tracks):
        for category, colour in CATEGORIES.items():
            own = [span for span in inside if (span["pid"], span["tid"]) == track and _kind(span) == category]
            axes.broken_barh([((span["ts"] - begin) / 1e3, span["dur"] / 1e3) for span in own], (place - 0.4, 0.8),
                             facecolors=colour, edgecolor=PAPER, linewidth=0.4)
            _write(axes, place, own, begin, end)
            rows += [(f"rank {track[0]}", names.get(track, track[1]), span["name"],
                      span.get("args", {}).get("bytes", "-"), f"{(span['ts'] - begin) / 1e3:.3f}",
                      f"{span['dur'] / 1e3:.3f}") for span in sorted(own, key=lambda span: span["ts"])]
    axes.set_yticks(range(len(tracks)), [f"rank {pid} {names.get((pid, tid), tid)}" for pid, tid in tracks])
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("milliseconds from the start of the step")
    there = {_kind(span) for span in inside}
    handles = [Patch(color=colour, label=category) for category, colour in CATEGORIES.items() if category in there]
    legend_above(axes, ncols=min(5, len(handles)), handles=handles)
    shares = [(rank, _hidden(inside, rank)) for rank in sorted({pid for pid, _ in tracks})]
    hidden = ", ".join(f"rank {rank} {share:.0%}" for rank, share in shares if share is not None)
    return [Chart(
        title=title + (f": {name}" if name else ""),
        explanation="The times at which each rank computed and communicated. Communication overlapped with compute of the "
                    "same rank is hidden; communication that the rank waits for (grey) is exposed. Numbers are micro-batches and bytes.",
        alt=f"{title}, {(end - begin) / 1e3:.1f} ms." +
            (f" Share of communication that is hidden: {hidden}." if hidden else ""),
        figure=figure,
        columns=("rank", "stream", "what", "bytes", "begin ms", "duration ms"),
        rows=rows)]


def _kind(span):
    """Its category, and of a split backward pass its part."""
    action = ACTION.fullmatch(span["name"])
    return {"I": "input gradient", "W": "weight gradient"}.get(action[1], span["cat"]) if action else span["cat"]


def _write(axes, place, spans, begin, end):
    """In each block with room for it: the micro-batch of a pass, the bytes of a bucket or another collective."""
    for span in spans:
        action = ACTION.fullmatch(span["name"])
        if action is None and span["cat"] != "communication":
            continue
        text = action[2] if action else bytes_text(span["args"]["bytes"])
        if LETTER * len(text) > DRAWN_POINTS * span["dur"] / (end - begin):
            continue
        written = axes.text((span["ts"] + span["dur"] / 2 - begin) / 1e3, place, text, fontsize=6, ha="center", va="center_baseline",
                            color="white")
        written.set_in_layout(False)


def _collective_charts(trace, trace_name):
    """One chart with a panel for each collective, on one scale."""
    calls = dict(sorted(last_calls(trace).items(), key=lambda call: _bounds(call[1][1])[1] - _bounds(call[1][1])[0])[:MOST_PANELS])
    longest = max((end - begin for begin, end in (_bounds(spans) for _, spans in calls.values())), default=0)
    if longest == 0:
        return []
    ranks = sorted({rank for _, spans in calls.values() for rank in spans})
    figure = new_figure(height=0.8 + len(calls) * (0.6 + 0.3 * len(ranks)))
    rows, times = [], []
    for axes, (name, (size, spans)) in zip(figure.subplots(len(calls), 1, sharex=True, squeeze=False)[:, 0], calls.items()):
        begin, end = _bounds(spans)
        rows += _draw_call(axes, name, spans, trace)
        _draw_arrows(axes, spans, trace)
        axes.set_yticks(ranks, [f"rank {rank}" for rank in ranks])
        axes.set_ylim(max(ranks) + 0.6, min(ranks) - 0.6)
        axes.grid(axis="y", visible=False)
        axes.set_title(f"{name} of {bytes_text(size)}: {time_text(end - begin)}", loc="left", fontsize=10)
        times.append(f"{name} {time_text(end - begin)}")
    axes.set_xlabel("microseconds from the first rank's start")
    there = {row[2].split()[0] for row in rows}
    handles = [Patch(color=colour, label=part) for part, colour in PARTS.items() if part in there]
    figure.axes[0].legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=max(1, len(handles)), handles=handles)
    return [Chart(
        title="Timeline of one call of each collective" + (f": {trace_name}" if trace_name else ""),
        explanation="The last call of each collective, in-place if the operation supports it: what each rank did and when. A "
                    "line leads from each message's departure to its arrival.",
        alt=f"Timeline of one call of each collective on {len(ranks)} ranks: " + ", ".join(times) + ".",
        figure=figure,
        columns=("collective", "rank", "what", "bytes", "begin µs", "duration µs"),
        rows=rows)]


def _bounds(spans):
    """Begin and end of a call on all ranks."""
    return min(span["ts"] for span in spans.values()), max(span["ts"] + span["dur"] for span in spans.values())


def _draw_call(axes, name, spans, trace):
    begin, _ = _bounds(spans)
    rows = []
    for rank, call in spans.items():
        axes.broken_barh([(call["ts"] - begin, call["dur"])], (rank - 0.4, 0.8), facecolors="none", edgecolor=COLOURS[1], linewidth=1)
        parts = [event for event in trace.events if event["ph"] == "X" and event.get("cat") == "message" and event["pid"] == rank and
                 event["tid"] == call["tid"] and call["ts"] <= event["ts"] and event["ts"] + event["dur"] <= call["ts"] + call["dur"]]
        for part, colour in PARTS.items():
            axes.broken_barh([(event["ts"] - begin, event["dur"]) for event in parts if event["name"].startswith(part)],
                             (rank - 0.3, 0.6), facecolors=colour, edgecolor=PAPER, linewidth=0.4)
        rows += [(name, rank, event["name"], event.get("args", {}).get("bytes", "-"), f"{event['ts'] - begin:.3f}",
                  f"{event['dur']:.3f}") for event in parts]
    return rows


def _draw_arrows(axes, spans, trace):
    """Lines from departures to arrivals, unless there are too many to tell apart."""
    begin, _ = _bounds(spans)
    arrivals = {event["id"]: event for event in trace.events if event["ph"] == "f"}
    sent = [event for event in trace.events if event["ph"] == "s" and event["id"] in arrivals and event["pid"] in spans and
            0 <= event["ts"] - spans[event["pid"]]["ts"] < spans[event["pid"]]["dur"]]
    for event in sent if len(sent) <= MOST_ARROWS else ():
        to = arrivals[event["id"]]
        axes.plot([event["ts"] - begin, to["ts"] - begin], [event["pid"], to["pid"]], color=INK, linewidth=0.6, marker="")


def _hidden(spans, rank):
    """The share of a rank's communication time in which it does not wait; None without communication."""
    own = [span for span in spans if span["pid"] == rank]
    waits = [span for span in own if span["cat"] == "wait"]
    # A collective may be a part of an exchange on the same stream.
    exchanging = {span["tid"] for span in own if span["cat"] == "exchange"}
    exchanges = [span for span in own if span["cat"] == ("exchange" if span["tid"] in exchanging else "communication")]
    total = sum(span["dur"] for span in exchanges)
    exposed = sum(max(0, min(a["ts"] + a["dur"], b["ts"] + b["dur"]) - max(a["ts"], b["ts"]))
                  for a in exchanges for b in waits)
    return 1 - exposed / total if total else None
