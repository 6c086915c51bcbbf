"""One step of FSDP for each trace, under one another: compute, gathers and reductions of rank 0, and the gathered blocks."""

import re
from collections import Counter

from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from chart import COLOURS, PAPER, WORK, Chart, new_figure

KINDS = {"forward": WORK["forward"], "backward": WORK["backward"], "wait": WORK["wait"], "gather": WORK["unshard"],
         "reduce": WORK["communication"]}
PASS = re.compile(r"([FB])(\d+)")
BLOCK_EVENT = re.compile(r"(AG|free)(\d+)")  # of a block: a limit holds without the root, which stays gathered
LETTER, DRAWN_POINTS = 4.5, 560  # points: the width of a small letter, and of the drawn step


def charts(results):
    """One chart of all traces that hold units, on one scale."""
    steps = [step for step in map(_step_of, results.traces, results.trace_names()) if step]
    if not steps:
        return []
    longest = max(step["duration"] for step in steps)
    figure = new_figure(height=0.9 + 1.75 * len(steps))
    panels = figure.subplots(2 * len(steps), 1, sharex=True, height_ratios=[len(steps[0]["tracks"]), 0.9] * len(steps))
    for step, timeline, blocks in zip(steps, panels[::2], panels[1::2]):
        _draw_timeline(timeline, step, longest)
        _draw_blocks(blocks, step, max(step["most"] for step in steps))
    panels[-1].set_xlabel("milliseconds from the start of the step")
    panels[-1].set_xlim(0, longest / 1e3)
    there = {span["kind"] for step in steps for span in step["spans"]}
    handles = [Patch(color=colour, label=kind) for kind, colour in KINDS.items() if kind in there]
    panels[0].legend(loc="lower right", bbox_to_anchor=(1, 1.16), ncols=len(handles), handles=handles)
    return [Chart(
        title="FSDP's prefetch modes: a step of rank 0",
        explanation="A block's parameters are gathered before it computes, and freed after it. Gathering early overlaps the "
                    "exchange with another block's compute, and needs memory for one more block: the steps below each timeline "
                    "count the blocks that are gathered or being gathered, without the root. Grey: compute waits for parameters "
                    "or gradients. Numbers are blocks; R is the root.",
        alt="A step of rank 0: " + "; ".join(
            _finding(step) for step in steps) + ".",
        figure=figure,
        columns=("trace", "step ms", "waiting ms", "gathers", "reductions", "gathered blocks at peak"),
        rows=[(step["name"], f"{step['duration'] / 1e3:.3f}", f"{_total(step, 'wait') / 1e3:.3f}", _count(step, "gather"),
               _count(step, "reduce"), step["most"]) for step in steps])]


def _finding(step):
    return f"{step['name']}: {step['duration'] / 1e3:.1f} ms, at most {step['most']} gathered block{'s' * (step['most'] != 1)}"


def _total(step, kind):
    return sum(span["end"] - span["begin"] for span in step["spans"] if span["kind"] == kind)


def _count(step, kind):
    return Counter(span["kind"] for span in step["spans"])[kind]


def _step_of(trace, name):
    """The typical step of rank 0: its spans by track, and the changes of the number of gathered blocks. None without units."""
    spans = [event for event in trace.events if event["ph"] == "X" and event["pid"] == 0]
    steps = [span for span in spans if span.get("cat") == "step"]
    if not steps or not any(span.get("cat") == "unit" for span in spans):
        return None
    last = next(span for span in steps if span["name"] == trace.typical_step())
    begin, end = last["ts"], last["ts"] + last["dur"]
    inside = sorted((span for span in spans if span.get("cat") in ("unit", "wait", "communication") and begin <= span["ts"] and
                     span["ts"] + span["dur"] <= end), key=lambda span: span["ts"])
    names = {event["tid"]: event["args"]["name"] for event in trace.events
             if event["ph"] == "M" and event["name"] == "thread_name" and event["pid"] == 0 and "tid" in event}
    changes, held = [(0.0, 0)], 0
    for span in inside:
        if event := BLOCK_EVENT.fullmatch(span["name"]):
            held += 1 if event[1] == "AG" else -1
            changes.append((span["ts"] - begin, held))
    found = [span for span in _named(inside) if span]
    tracks = sorted({span["tid"] for span in found})
    return {"name": name, "duration": last["dur"], "changes": changes, "most": max(count for _, count in changes),
            "tracks": {tid: names.get(tid, "compute" if tid == 0 else str(tid)) for tid in tracks},
            "spans": [{**span, "begin": span["ts"] - begin, "end": span["ts"] + span["dur"] - begin} for span in found]}


def _named(inside):
    """The drawn spans with their kind and block. A stream works in order, so its n-th collective is that of the n-th event."""
    units = [span["name"] for span in inside if span["cat"] == "unit"]
    labels = {"all_gather": [name.removeprefix("AG").lstrip("_") for name in units if name.startswith("AG")],
              "reduce_scatter": [name.removeprefix("RS").lstrip("_") for name in units if name.startswith("RS")]}
    collectives = {operation: sum(_operation(span) == operation for span in inside) for operation in labels}
    for span in inside:
        action, operation = PASS.fullmatch(span["name"]), _operation(span)
        if span["cat"] == "unit" and action:
            yield {**span, "kind": "forward" if action[1] == "F" else "backward", "label": action[2]}
        elif span["cat"] == "wait":
            yield {**span, "kind": "wait", "label": ""}
        elif operation in labels:
            # Also of parameters that are gathered after the step, which belong to no event.
            known = len(labels[operation]) == collectives[operation]
            collectives[f"{operation} drawn"] = place = collectives.get(f"{operation} drawn", -1) + 1
            yield {**span, "kind": "gather" if operation == "all_gather" else "reduce",
                   "label": labels[operation][place] if known else ""}


def _operation(span):
    return span["name"].split("/")[0] if span.get("cat") == "communication" else ""


def _draw_timeline(axes, step, longest):
    for place, track in enumerate(step["tracks"]):
        for kind, colour in KINDS.items():
            own = [span for span in step["spans"] if span["tid"] == track and span["kind"] == kind]
            axes.broken_barh([(span["begin"] / 1e3, (span["end"] - span["begin"]) / 1e3) for span in own], (place - 0.4, 0.8),
                             facecolors=colour, edgecolor=PAPER, linewidth=0.4)
            for span in own:
                if LETTER * len(span["label"]) < DRAWN_POINTS * (span["end"] - span["begin"]) / longest:
                    axes.text((span["begin"] + span["end"]) / 2e3, place, span["label"], fontsize=7, ha="center",
                              va="center_baseline", color="white").set_in_layout(False)
    axes.set_yticks(range(len(step["tracks"])), step["tracks"].values())
    axes.set_ylim(len(step["tracks"]) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)
    axes.set_title(_finding(step), loc="left", fontsize=10)


def _draw_blocks(axes, step, most):
    times, counts = zip(*step["changes"], (step["duration"], step["changes"][-1][1]))
    times = [time / 1e3 for time in times]
    axes.step(times, counts, where="post", color=COLOURS[3], marker="", label="gathered blocks")
    axes.fill_between(times, counts, step="post", color=COLOURS[3], alpha=0.25, linewidth=0)
    axes.set_ylim(0, most + 0.4)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=3))
    axes.set_ylabel("blocks", fontsize=8)
