"""Compares pipeline schedules: bubble with its closed form, memory of each rank, tokens per second."""

from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from chart import (COLOURS, MARKERS, PAPER, SOFT, Chart, bytes_axis, bytes_text, legend_right, line_styles, log2_axis,
                   nested_widths, new_figure)

# A smaller bubble counts as none: a relative deviation from zero is undefined.
NO_BUBBLE = 1e-9
GREY = {"color": SOFT}
DOTTED = (0, (1, 2))


def charts(results):
    """The charts of each clock and link: only points of the same ones can be compared."""
    groups = {}
    for run in results.benchmarks:
        for point in run.pipeline_points():
            link = run.link if run.clock != "wall" else ""
            groups.setdefault((run.clock, link), []).append(point)
    found = []
    for (clock, link), points in sorted(groups.items()):
        kind = ""
        if any(point.measured is not None for point in points):
            kind = ": real time" if clock == "wall" else f": virtual time, {link}"
        found += [_bubble_chart(kind, points), *_memory_charts(kind, points), _speed_chart(kind, _lines(points))]
    return [chart for chart in found if chart]


def _lines(points):
    """The points of each line by number of micro-batches. A line's name holds what distinguishes it from the others."""
    lines = {}
    for point in points:
        lines.setdefault((point.schedule, point.ranks, point.virtual_stages), []).append(point)
    named = {}
    for schedule, ranks, virtual_stages in lines:
        parts = [schedule]
        parts += [f"{ranks} ranks"] if len({key[1] for key in lines}) > 1 else []
        if len({key[2] for key in lines if key[0] == schedule}) > 1:
            parts.append(f"{virtual_stages} virtual stages a rank")
        named[", ".join(parts)] = sorted(lines[schedule, ranks, virtual_stages], key=lambda point: point.micro_batches)
    return named


def _styles(count):
    """A style for each line. Repeated colours have other markers."""
    return [{**style, "marker": MARKERS[(i + i // len(COLOURS)) % len(MARKERS)]}
            for i, style in enumerate(line_styles(count))]


def _tokens(speed):
    if speed is None:
        return "-"
    return f"{speed:.0f}" if speed >= 100 else f"{speed:.3g}"


def _percent(share):
    return "-" if share is None else f"{100 * share:.2f}"


def _deviation(share, expected):
    """In % of the closed form."""
    if share is None or expected is None or expected < NO_BUBBLE:
        return "-"
    return f"{round((share / expected - 1) * 100, 2) + 0.0:+.2f}"  # no -0.00


def _curve(line):
    """(m / p, bubble in %) by the closed form, or by simulation if no point has one."""
    forms = [(point.ratio, _rounded(point.expected)) for point in line if point.expected is not None]
    return forms or [(point.ratio, _rounded(point.simulated)) for point in line]


def _rounded(share):
    """In %, so that values that differ only by rounding are equal."""
    return round(100 * share, 9)


def _bubble_chart(kind, points):
    """A panel for each number of ranks."""
    panels = {ranks: _lines([point for point in points if point.ranks == ranks])
              for ranks in sorted({point.ranks for point in points})}
    names = list(dict.fromkeys(name for lines in panels.values() for name in lines))
    styles = dict(zip(names, _styles(len(names))))
    figure = new_figure(width=5 + 6 * len(panels), height=max(5.4, 1.6 + 0.22 * len(names)))
    all_axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, (ranks, lines) in zip(all_axes, panels.items()):
        _draw_bubbles(axes, lines, styles)
        axes.set_title(f"{ranks} ranks", loc="left")
    all_axes[0].set_ylim(bottom=0)
    all_axes[0].set_ylabel("bubble (% of all ranks' time)")
    legend_right(all_axes[-1], handles=_handles(points, styles))
    return Chart(
        title=f"Bubble of pipeline schedules{kind}",
        explanation="The share of all ranks' time in which they wait, over micro-batches per rank. The line is the closed "
                    "form, a ring the simulated schedule, a filled point the measurement; it deviates if hops and uneven "
                    "passes cost time that the closed form does not include. A schedule without a closed form has a dotted "
                    "line through the simulated points. Where lines overlap, the first is drawn widest.",
        alt="Bubble of pipeline schedules, each at its most micro-batches: " + "; ".join(
            f"{ranks} ranks: " + ", ".join(f"{name} {_finding(line[-1])}" for name, line in lines.items())
            for ranks, lines in panels.items()) + ".",
        figure=figure,
        columns=("schedule", "ranks", "virtual stages a rank", "micro-batches", "closed form %", "simulated %",
                 "simulated, deviation %", "measured %", "measured, deviation %", "tokens per second"),
        rows=[(name, point.ranks, point.virtual_stages, point.micro_batches, _percent(point.expected),
               _percent(point.simulated), _deviation(point.simulated, point.expected), _percent(point.measured),
               _deviation(point.measured, point.expected), _tokens(point.tokens_per_second))
              for lines in panels.values() for name, line in lines.items() for point in line])


def _finding(point):
    simulated = f"{100 * point.simulated:.1f} % simulated"
    return simulated if point.measured is None else f"{simulated} and {100 * point.measured:.1f} % measured"


def _has_form(line):
    return any(point.expected is not None for point in line)


def _draw_bubbles(axes, lines, styles):
    curves = [_curve(line) for line in lines.values()]
    rings = [[(point.ratio, _rounded(point.simulated)) for point in line] for line in lines.values()]
    for (name, line), curve, width in zip(lines.items(), curves, nested_widths(curves)):
        stroke = {} if _has_form(line) else {"linestyle": DOTTED}
        axes.plot(*zip(*curve), label=name, **{**styles[name], **stroke, "marker": "", "linewidth": width})
    for name, ring, width in zip(lines, rings, nested_widths(rings)):
        axes.plot(*zip(*ring), linestyle="", marker="o", markersize=5 + 2.4 * width, markerfacecolor="none",
                  color=styles[name]["color"], label=f"{name}, simulated")
    for name, line in lines.items():
        measured = [point for point in line if point.measured is not None]
        axes.plot([point.ratio for point in measured], [100 * point.measured for point in measured],
                  **{**styles[name], "linestyle": "", "markersize": 6, "markeredgecolor": PAPER, "markeredgewidth": 0.5},
                  label=f"{name}, measured")
    log2_axis(axes, {point.ratio for line in lines.values() for point in line}, "micro-batches by rank, m / p")


def _handles(points, styles):
    any_measured = any(point.measured is not None for point in points)
    handles = [Line2D([], [], label=name, **{**style, "markersize": 6 if any_measured else 0})
               for name, style in styles.items()]
    handles.append(Line2D([], [], **GREY, marker="", label="line: closed form"))
    if not all(_has_form(line) for line in _lines(points).values()):
        handles.append(Line2D([], [], **{**GREY, "linestyle": DOTTED}, marker="", label="dotted: simulated, without one"))
    handles.append(Line2D([], [], **{**GREY, "linestyle": ""}, marker="o", markersize=9, markerfacecolor="none",
                          label="ring: simulated"))
    if any_measured:
        handles.append(Line2D([], [], **{**GREY, "linestyle": ""}, marker="s", markersize=6, label="filled: measured"))
    return handles


def _memory_charts(kind, points):
    """One chart for each number of ranks, at the largest number of micro-batches that all schedules have, or that any has."""
    return [_memory_chart(kind, ranks, _lines([point for point in points if point.ranks == ranks]))
            for ranks in sorted({point.ranks for point in points})]


def _memory_chart(kind, ranks, lines):
    counts = [{point.micro_batches for point in line} for line in lines.values()]
    most = max(set.intersection(*counts) or set.union(*counts))
    points = [(name, point) for name, line in lines.items() for point in line if point.micro_batches == most]
    # In bytes if any were measured; without training only micro-batches are known.
    in_bytes = any(point.activation_bytes for _, point in points)
    points = [(name, point) for name, point in points if point.activation_bytes or not in_bytes]
    heights = [point.activation_bytes if in_bytes else point.in_flight for _, point in points]
    figure = new_figure(width=max(6.0, min(13.0, 2.5 + 0.95 * len(points))), height=4.4)
    axes = figure.subplots()
    for place, bars in enumerate(heights):
        places = [place + 0.84 * ((rank + 0.5) / ranks - 0.5) for rank in range(ranks)]
        axes.bar(places, bars, width=0.84 / ranks, color=COLOURS[0], edgecolor=PAPER, linewidth=0.4)
        highest = [x for x, bar in zip(places, bars) if bar == max(bars)]
        axes.annotate(bytes_text(max(bars)) if in_bytes else str(max(bars)), (sum(highest) / len(highest), max(bars)),
                      xytext=(0, 3), textcoords="offset points", ha="center", fontsize=8)
    axes.set_xticks(range(len(points)), [name for name, _ in points], rotation=30, ha="right", rotation_mode="anchor")
    axes.set_xlim(-0.6, len(points) - 0.4)
    axes.grid(axis="x", visible=False)
    if in_bytes:
        bytes_axis(axes.yaxis, max(map(max, heights)))
    else:
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    what = "peak bytes of activations" if in_bytes else "most micro-batches in flight"
    axes.set_ylabel(what)
    return Chart(
        title=f"Activations of {ranks} ranks, {most} micro-batches{kind}",
        explanation=f"The {what}, a bar for each rank, from the first rank on the left to the last on the right. With 1f1b, "
                    "later ranks hold less. A schedule that runs all forward passes first holds all micro-batches on all "
                    "ranks; one that delays weight gradients keeps their inputs until then. A micro-batch in flight counts "
                    "once for each of a rank's virtual stages.",
        alt=f"The {what} of any of {ranks} ranks: " + ", ".join(
            f"{name} {bytes_text(max(bars)) if in_bytes else max(bars)}" for (name, _), bars in zip(points, heights)) + ".",
        figure=figure,
        columns=("schedule", "rank", "micro-batches", "most in flight", "peak activation bytes"),
        rows=[(name, rank, point.micro_batches, point.in_flight[rank],
               point.activation_bytes[rank] if point.activation_bytes else "-")
              for name, point in points for rank in range(ranks)])


def _speed_chart(kind, lines):
    """The chart of tokens per second, or None with fewer than two numbers of micro-batches."""
    speeds = {name: [point for point in line if point.tokens_per_second is not None] for name, line in lines.items()}
    counts = {point.micro_batches for line in speeds.values() for point in line}
    if len(counts) < 2:
        return None
    figure = new_figure(width=10, height=max(4.4, 1.2 + 0.22 * len(lines)))
    axes = figure.subplots()
    for (name, line), style in zip(speeds.items(), _styles(len(lines))):
        if line:
            axes.plot([point.micro_batches for point in line], [point.tokens_per_second for point in line], label=name, **style)
    log2_axis(axes, counts, "micro-batches of a step")
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 10 else f"{value:g}"))
    axes.set_ylabel("tokens per second")
    legend_right(axes)
    fastest = max(((point.tokens_per_second, name, point) for name, line in speeds.items() for point in line),
                  key=lambda item: item[:2])
    return Chart(
        title=f"Speed of pipeline schedules{kind}",
        explanation="Tokens of the median step, per second. More micro-batches fill the pipeline better; a schedule with a "
                    "smaller bubble needs fewer, unless its passes are so small that starting them takes longer than "
                    "running them.",
        alt=f"Tokens per second of {len(lines)} pipeline schedules over micro-batches. Fastest: {fastest[1]} with "
            f"{fastest[2].micro_batches}, {_tokens(fastest[0])}.",
        figure=figure,
        columns=("schedule", "ranks", "virtual stages a rank", "micro-batches", "tokens per second"),
        rows=[(name, point.ranks, point.virtual_stages, point.micro_batches, _tokens(point.tokens_per_second))
              for name, line in speeds.items() for point in line])
