"""One training step of a trace: a row for each stream of each rank."""

from matplotlib.patches import Patch

from chart import COLOURS, Chart, legend_above, new_figure

# Drawn in this order, later ones on top.
CATEGORIES = {"compute": COLOURS[0], "forward": COLOURS[5], "backward": COLOURS[3], "optimizer": COLOURS[2], "wait": "#bbbbbb",
              "communication": COLOURS[1]}


def charts(results):
    return [chart for trace in results.traces for chart in _charts_of(trace, len(results.traces) > 1)]


def _charts_of(trace, several):
    spans = [event for event in trace.events if event["ph"] == "X"]
    steps = [span for span in spans if span.get("cat") == "step"]
    if not steps:
        return []
    last = max(steps, key=lambda span: int(span["name"].split()[1]))["name"]
    begin = min(span["ts"] for span in steps if span["name"] == last)
    end = max(span["ts"] + span["dur"] for span in steps if span["name"] == last)
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
            own = [span for span in inside if (span["pid"], span["tid"]) == track and span["cat"] == category]
            axes.broken_barh([((span["ts"] - begin) / 1e3, span["dur"] / 1e3) for span in own], (place - 0.4, 0.8),
                             facecolors=colour, edgecolor="white", linewidth=0.4)
            rows += [(f"rank {track[0]}", names.get(track, track[1]), span["name"],
                      span.get("args", {}).get("bytes", "-"), f"{(span['ts'] - begin) / 1e3:.3f}",
                      f"{span['dur'] / 1e3:.3f}") for span in sorted(own, key=lambda span: span["ts"])]
    axes.set_yticks(range(len(tracks)), [f"rank {pid} {names.get((pid, tid), tid)}" for pid, tid in tracks])
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("milliseconds from the start of the step")
    there = {span["cat"] for span in inside}
    handles = [Patch(color=colour, label=category) for category, colour in CATEGORIES.items() if category in there]
    legend_above(axes, ncols=len(handles), handles=handles)
    shares = [(rank, _hidden(inside, rank)) for rank in sorted({pid for pid, _ in tracks})]
    hidden = ", ".join(f"rank {rank} {share:.0%}" for rank, share in shares if share is not None)
    return [Chart(
        title=f"Timeline of {last}" + (f" ({trace.path.name})" if several else ""),
        explanation="The times at which each rank computed and communicated. Communication overlapped with compute of the "
                    "same rank is hidden; communication during its waiting (grey) is exposed.",
        alt=f"Timeline of {last}, {(end - begin) / 1e3:.1f} ms." +
            (f" Share of communication that is hidden: {hidden}." if hidden else ""),
        figure=figure,
        columns=("rank", "stream", "what", "bytes", "begin ms", "duration ms"),
        rows=rows)]


def _hidden(spans, rank):
    """The share of a rank's communication time in which it does not wait; None without communication."""
    waits, exchanges = ([span for span in spans if span["pid"] == rank and span["cat"] == category]
                        for category in ("wait", "communication"))
    total = sum(span["dur"] for span in exchanges)
    exposed = sum(max(0, min(a["ts"] + a["dur"], b["ts"] + b["dur"]) - max(a["ts"], b["ts"]))
                  for a in exchanges for b in waits)
    return 1 - exposed / total if total else None
