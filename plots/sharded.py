"""Sharded data parallelism compared with ddp and tp: memory by use over ranks, bytes of a step, time over the speed of links."""

import math
import textwrap

from matplotlib.lines import Line2D
from matplotlib.patches import Patch

import sharded_times
from chart import COLOURS, INK, REFERENCE, SOFT, Chart, bytes_axis, bytes_text, legend_above, new_figure

USES = {"parameters": COLOURS[0], "gradients": COLOURS[1], "optimizer": COLOURS[2]}
WHOLE = {"facecolor": "none", "hatch": "//////", "linewidth": 0}
LABELS = {"gradients": COLOURS[1], "parameters": COLOURS[0], "gradients of replicas": COLOURS[3], "norm": COLOURS[6]}
OTHER_LABELS = [COLOURS[2], COLOURS[4], COLOURS[5], "#8c6d31", "#999999", COLOURS[3]]
PAPER_RANKS = 64  # of the figure in ZeRO's paper
LEGEND_COLUMN, LEGEND_ROW = 1.6, 0.27  # inches


def charts(results):
    """Charts of each model, clock and roofline: only points of the same ones can be compared."""
    groups, crossovers = {}, {}
    for run in results.benchmarks:
        for point in run.sharded_points():
            key = (run.model, run.clock, run.data["context"].get("lockstep.roofline", ""))
            groups.setdefault(key, {})[point.link, point.ranks, point.strategy] = point
            crossovers[key] = [*crossovers.get(key, []), *(found for found in run.crossovers() if found not in crossovers.get(key, []))]
    found = []
    for key, points in groups.items():
        model, _, roofline = key
        points = list(points.values())
        found += [_memory_chart(model, points), _states_chart(model, points), _traffic_chart(model, points)]
        found += sharded_times.charts(model, roofline, points, crossovers[key])
    return [chart for chart in found if chart]


def counted(points):
    """One point for each strategy and number of ranks: counts do not depend on the link."""
    return sorted({(point.strategy, point.ranks): point for point in points}.values(), key=lambda point: point.ranks)


def alike(points, signature):
    """{name of strategies with equal signatures at all numbers of ranks: the points of the first}"""
    groups = {}
    for strategy in dict.fromkeys(point.strategy for point in points):
        line = [point for point in points if point.strategy == strategy]
        groups.setdefault(tuple((point.ranks, signature(point)) for point in line), []).append((strategy, line))
    return {", ".join(strategy for strategy, _ in group): group[0][1] for group in groups.values()}


def _states(point):
    return tuple(point.peak[use] for use in USES) + tuple(point.kept.values())


def _memory_chart(model, points):
    """A panel for each strategy: what a rank keeps and holds at peak over ranks, with ZeRO's formula."""
    lines = alike([point for point in counted(points) if point.paper_bytes > 0], _states)
    if not lines:
        return None
    ranks = sorted({point.ranks for line in lines.values() for point in line})
    figure, body = _with_legend(max(8.0, min(15.0, 1.5 + len(lines) * (0.9 + 0.34 * len(ranks)))), 5.2, _state_handles())
    panels = body.subplots(1, len(lines), sharey=True, squeeze=False)[0]
    for axes, (name, line) in zip(panels, lines.items()):
        _draw_states(axes, [ranks.index(point.ranks) for point in line], line)
        axes.plot([ranks.index(point.ranks) for point in line], [point.paper_bytes for point in line], color=INK, marker="o",
                  markersize=4, markerfacecolor="none", linewidth=1, label="formula")
        axes.set_title(textwrap.fill(name, 6 + 4 * len(ranks), break_on_hyphens=False), loc="left", fontsize=10)
        axes.set_xticks(range(len(ranks)), ranks)
        axes.set_xlim(-0.6, len(ranks) - 0.4)
        axes.set_xlabel("ranks")
        axes.grid(axis="x", visible=False)
    most = max(sum(point.peak[use] for use in USES) for line in lines.values() for point in line)
    panels[0].set_ylim(0, 1.04 * most)
    bytes_axis(panels[0].yaxis, most)
    panels[0].set_ylabel("states of rank 0")
    last = {name: line[-1] for name, line in lines.items()}
    return Chart(
        title=f"Memory of model and optimizer: {model}",
        explanation="What rank 0 holds of parameters, gradients and the optimizer's states. Solid: kept between steps. Hatched: "
                    "additional memory at the peak of each use: whole units of gathered parameters, and gradients not yet "
                    "reduced; they do not shrink with more ranks. The line is the formula of ZeRO's paper for what is kept.",
        alt="States kept on " + "; ".join(f"{point.ranks} ranks, {name}: {bytes_text(sum(point.kept.values()))}, by the formula "
                                          f"{bytes_text(point.paper_bytes)}" for name, point in last.items()) + ".",
        figure=figure,
        columns=("strategy", "ranks", *(f"{use} {when}" for use in USES for when in ("kept", "at peak")), "kept", "ZeRO's formula",
                 "gathered blocks at peak"),
        rows=[(name, point.ranks, *(number for use in USES for number in (point.kept[use], point.peak[use])),
               sum(point.kept.values()), f"{point.paper_bytes:.0f}", "-" if point.whole_blocks is None else f"{point.whole_blocks:g}")
              for name, line in lines.items() for point in line])


def _with_legend(width, height, handles):
    """A figure with a legend above the panels, and the part below it."""
    columns = max(1, int(width / LEGEND_COLUMN))
    legend = LEGEND_ROW * math.ceil(len(handles) / columns)
    figure = new_figure(width=width, height=height + legend)
    above, body = figure.subfigures(2, 1, height_ratios=[legend, height])
    above.legend(handles=handles, loc="upper left", ncols=min(columns, len(handles)))
    return figure, body


def _draw_states(axes, places, line):
    """What is kept of each use, and above it what is whole at the peak of each."""
    parts = [([point.kept[use] for point in line], {"color": colour, "label": use}) for use, colour in USES.items()]
    parts += [([point.peak[use] - point.kept[use] for point in line], {**WHOLE, "edgecolor": colour, "label": f"{use} at peak"})
              for use, colour in USES.items()]
    bottoms = [0] * len(line)
    for heights, style in parts:
        axes.bar(places, heights, bottom=bottoms, width=0.8, **style)
        bottoms = [bottom + height for bottom, height in zip(bottoms, heights)]


def _state_handles():
    return [*(Patch(color=colour, label=use) for use, colour in USES.items()),
            Patch(**WHOLE, edgecolor=SOFT, label="whole units, at peak"),
            Line2D([], [], color=INK, marker="o", markersize=4, markerfacecolor="none", linewidth=1, label="ZeRO's formula")]


def _states_chart(model, points):
    """The figure of ZeRO's paper: states by stage on one number of ranks, in GB of 10^9 bytes."""
    all_ranks = {point.ranks for point in points}
    ranks = PAPER_RANKS if PAPER_RANKS in all_ranks else max(all_ranks)
    stages = [point for point in counted(points) if point.ranks == ranks and point.strategy in ("ddp", "zero-1", "zero-2", "zero-3")]
    if len(stages) < 2 or ranks == 1:
        return None
    figure = new_figure(width=8.5, height=1.5 + 0.42 * len(stages))
    axes = figure.subplots()
    lefts = [0] * len(stages)
    for use, colour in USES.items():
        widths = [point.kept[use] / 1e9 for point in stages]
        axes.barh(range(len(stages)), widths, left=lefts, color=colour, label=use, height=0.7)
        lefts = [left + width for left, width in zip(lefts, widths)]
    for place, (point, total) in enumerate(zip(stages, lefts)):
        axes.annotate(_gigabytes(total), (total, place), xytext=(5, 0), textcoords="offset points", va="center", fontsize=10)
    axes.plot([point.paper_bytes / 1e9 for point in stages], range(len(stages)), linestyle="", marker="|", markersize=20,
              markeredgewidth=1.5, color=INK, label="ZeRO's formula")
    axes.set_yticks(range(len(stages)), [point.strategy for point in stages])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.12 * max(lefts))
    axes.grid(axis="y", visible=False)
    axes.set_xlabel(f"GB kept by each of {ranks} ranks")
    handles, _ = axes.get_legend_handles_labels()
    legend_above(axes, ncols=4, handles=handles[1:] + handles[:1])
    return Chart(
        title=f"States by ZeRO's stage on {ranks} ranks: {model}",
        explanation="What rank 0 keeps between steps: its own parameters, gradients and optimizer's states, counted from its "
                    "shards. Uneven shards make it differ from the formula of ZeRO's paper by a few bytes.",
        alt=f"States kept by each of {ranks} ranks: " + ", ".join(
            f"{point.strategy} {_gigabytes(total)}" for point, total in zip(stages, lefts)) + ".",
        figure=figure,
        columns=("strategy", *(f"{use} bytes" for use in USES), "kept GB", "ZeRO's formula GB"),
        rows=[(point.strategy, *(point.kept[use] for use in USES), f"{total:.4g}", f"{point.paper_bytes / 1e9:.4g}")
              for point, total in zip(stages, lefts)])


def _gigabytes(count):
    """119.99 -> 120 GB; 31.41 -> 31.4 GB; 0.0123 -> 0.0123 GB"""
    return f"{count:.1f} GB".replace(".0 GB", " GB") if count >= 1 else f"{count:.3g} GB"


def _traffic_chart(model, points):
    """A panel for each number of ranks, a bar for each strategy."""
    points = [point for point in counted(points) if point.ranks > 1]
    lines = alike(points, lambda point: (*point.sent.items(), *point.expected_sent.items()))
    ranks = sorted({point.ranks for point in points})
    if not lines:
        return None
    labels = dict.fromkeys(label for line in lines.values() for point in line for label in point.sent)
    colours = {**dict(zip((label for label in labels if label not in LABELS), OTHER_LABELS * len(labels))), **LABELS}
    columns = min(3, len(ranks))
    rows = math.ceil(len(ranks) / columns)
    handles = [Patch(color=colours[label], label=label) for label in labels if any(point.sent.get(label, 0) for point in points)]
    handles.append(Line2D([], [], linestyle="", marker="|", markersize=12, markeredgewidth=2, color=REFERENCE["color"],
                          label="closed form"))
    figure, body = _with_legend(4.4 + 2.9 * columns, 1.0 + rows * (0.8 + 0.34 * len(lines)), handles)
    all_axes = list(body.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flat)
    for axes in all_axes[len(ranks):]:
        axes.remove()
    for axes, count in zip(all_axes, ranks):
        shown = [(place, point) for place, line in enumerate(lines.values()) for point in line if point.ranks == count]
        begins = dict.fromkeys((place for place, _ in shown), 0)
        for label in labels:
            widths = [point.sent.get(label, 0) for _, point in shown]
            axes.barh(list(begins), widths, left=list(begins.values()), color=colours[label], label=label, height=0.7)
            begins = {place: begin + width for (place, begin), width in zip(begins.items(), widths)}
        axes.plot([sum(point.expected_sent.values()) for _, point in shown], list(begins), linestyle="", marker="|", markersize=16,
                  markeredgewidth=2, color=REFERENCE["color"], label="closed form")
        axes.set_title(f"{count} ranks", loc="left", fontsize=10)
        axes.set_yticks(range(len(lines)), [textwrap.fill(name, 40, break_on_hyphens=False) for name in lines], fontsize=8)
        axes.grid(axis="y", visible=False)
        axes.tick_params(axis="x", labelrotation=30, labelbottom=True)
    most = max(sum(point.sent.values()) for point in points)
    figure.axes[0].invert_yaxis()
    figure.axes[0].set_xlim(0, 1.06 * most)
    bytes_axis(figure.axes[0].xaxis, most)
    return Chart(
        title=f"Bytes that rank 0 sends in a step: {model}",
        explanation="Counted bytes by label; the mark is their closed form. Stages 1 and 2 send as much as ddp, because a reduce-scatter "
                    "plus an all-gather equals an all-reduce. Stage 3 gathers parameters twice, for forward and for backward, and sends up "
                    "to 1.5 times as much. Strategies that send the same share a bar.",
        alt="Bytes sent in a step: " + "; ".join(f"{count} ranks: " + ", ".join(
            f"{name} {bytes_text(sum(point.sent.values()))}" for name, line in lines.items() for point in line
            if point.ranks == count) for count in ranks) + ".",
        figure=figure,
        columns=("strategy", "ranks", *labels, "total", "closed form"),
        rows=[(name, point.ranks, *(point.sent.get(label, 0) for label in labels), sum(point.sent.values()),
               sum(point.expected_sent.values())) for name, line in lines.items() for point in line])
