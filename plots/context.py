"""Methods of sharing sequences: which rank has which pairs, bytes over ranks with the crossover, step time, memory, error of bf16,
and work with documents."""

import math

from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

import context_documents
import context_memory
from chart import COLOURS, INK, REFERENCE, SOFT, Chart, bytes_axis, bytes_text, log2_axis, new_figure, time_text
from context_lines import alike, bytes_log_axis, draw_line, grouped, legend, ordered, setting_text, style_of, tokens_axis

MOST_PANELS = 6
REFERENCE_METHOD = "ring-zig-zag"


def charts(results):
    """Charts of each model and clock: only points of the same ones can be compared."""
    groups, found = {}, []
    for run in results.benchmarks:
        if run.context_masks():
            found.append(_mask_chart(run.context_masks(), run.context_limits()))
        for point in run.context_points():
            key = (run.model, run.clock, run.data["context"].get("lockstep.roofline", ""))
            points, crossovers = groups.setdefault(key, ({}, []))
            points[point.method, point.link, point.ranks, point.heads, point.kv_heads, point.length] = point
            crossovers += [crossover for crossover in run.context_crossovers() if crossover not in crossovers]
    # Several files have the same masks.
    found = list({chart.alt: chart for chart in found}.values())
    for (model, clock, roofline), (points, crossovers) in groups.items():
        points = list(points.values())
        ranks = f"; ranks of {roofline}" if roofline else f"; clock {clock}"
        found += [_bytes_chart(model, points, crossovers), _time_chart(model + ranks, points), context_memory.chart(model, points)]
    found += [context_memory.error_chart(results), *context_documents.charts(results)]
    return [chart for chart in found if chart]


def _mask_chart(masks, limits):
    """A causal mask for each layout: a row for each query, coloured by the rank that has it; below, the pairs of each rank."""
    figure = new_figure(width=3.6 * len(masks) + 1, height=5.4)
    above, below = figure.subplots(2, len(masks), height_ratios=[3.2, 1], sharey="row", squeeze=False)
    most = max(max(mask.pairs) for mask in masks)
    for axes, bars, mask in zip(above, below, masks):
        length = len(mask.owners)
        colours = [COLOURS[owner % len(COLOURS)] for owner in mask.owners]
        axes.barh(range(length), range(1, length + 1), height=1, align="edge", color=colours, linewidth=0)
        axes.bar(range(length), [-1.4] * length, bottom=-0.6, width=1, align="edge", color=colours, linewidth=0)
        axes.set_title(mask.layout, loc="left")
        axes.set_xlim(0, length)
        axes.set_ylim(length, -2)
        axes.set_aspect("equal")
        axes.grid(visible=False)
        axes.set_xlabel("key (above: the rank that has it)")
        bars.barh(range(mask.ranks), mask.pairs, color=[COLOURS[rank % len(COLOURS)] for rank in range(mask.ranks)])
        for rank, count in enumerate(mask.pairs):
            bars.annotate(str(count), (count, rank), xytext=(3, 0), textcoords="offset points", va="center", fontsize=9)
        bars.set_xlim(0, 1.18 * most)
        bars.set_yticks(range(mask.ranks), [f"rank {rank}" for rank in range(mask.ranks)])
        bars.grid(axis="y", visible=False)
        bars.set_xlabel(f"pairs; most / mean: {_imbalance(mask):.3f}")
    above[0].set_ylabel("query")
    below[0].invert_yaxis()
    ranks = masks[0].ranks
    found = [limit for limit in limits if limit.ranks == ranks]
    longest = max(found, key=lambda limit: limit.length, default=None)
    return Chart(
        title=f"Who computes what: the causal mask of {len(masks[0].owners)} tokens on {ranks} ranks",
        explanation="Each row is a query and each column a key that it sees. A row has the colour of the rank that "
                    "holds the query; the strip above, of the rank that holds each key. In a ring all ranks move in step, so the rank with the most "
                    "pairs decides: with contiguous tokens it has nearly (2c-1)/c times the mean of c ranks.",
        alt="Pairs of queries and keys by rank: " + "; ".join(
            f"{mask.layout} {', '.join(map(str, mask.pairs))}" for mask in masks) + "." + (
                f" With {longest.length} tokens, attention of contiguous tokens takes {longest.measured:.4f} times as long as of zig-zag "
                f"ones; the limit (2c-1)/c is {longest.limit:.4f}." if longest else ""),
        figure=figure,
        columns=("layout", "rank", "pairs", "tokens"),
        rows=[(mask.layout, rank, count, mask.owners.count(rank)) for mask in masks for rank, count in enumerate(mask.pairs)])


def _imbalance(mask):
    return max(mask.pairs) * mask.ranks / sum(mask.pairs)


def _bytes_chart(model, points, crossovers):
    """A panel for each number of heads: what the busiest rank sends over ranks. Bytes do not depend on the link."""
    shared = [point for point in points if point.ranks > 1]
    length = max((point.length for point in shared), default=0)
    shared = list({(point.method, point.ranks, point.heads, point.kv_heads): point for point in shared if point.length == length}.values())
    if not shared:
        return None
    panels = grouped(shared, lambda point: (point.heads, point.kv_heads))
    lines = alike(shared, lambda point: (point.ranks, point.heads, point.kv_heads, point.exchanged_bytes))
    if len({point.ranks for point in shared}) == 1:
        return _bytes_bars(model, panels, lines, length)
    figure = new_figure(width=2.4 + 3.8 * len(panels), height=4.6)
    all_axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, ((heads, kv_heads), own) in zip(all_axes, panels.items()):
        for name, methods in lines.items():
            line = ordered(own, methods[0], "ranks")
            draw_line(axes, line, methods[0], name, lambda point: point.ranks, lambda point: point.exchanged_bytes,
                      lambda point: point.expected_exchanged_bytes)
        for crossover in crossovers:
            if (crossover.quantity, crossover.over, crossover.heads, crossover.kv_heads, crossover.length) == (
                    "bytes", "ranks", heads, kv_heads, length):
                _draw_crossover(axes, crossover, ordered(own, "ulysses", "ranks"))
        log2_axis(axes, {point.ranks for point in own}, "ranks")
        axes.set_title(f"{heads} query heads, {kv_heads} key/value heads", loc="left", fontsize=10)
    bytes_log_axis(*all_axes)
    all_axes[0].set_ylabel("sent by the busiest rank")
    legend(all_axes[-1], lines, Line2D([], [], color=SOFT, linestyle="", marker="o", markersize=11, markerfacecolor="none",
                                       label="Ulysses crosses the ring"))
    crossings = [f"With {c.heads} query heads and {c.kv_heads} key/value heads, Ulysses sends {'less' if c.ulysses_is_less_above else 'more'} "
                 f"than a ring above {c.at:.3g} ranks" for c in crossovers
                 if (c.quantity, c.over, c.length) == ("bytes", "ranks", length)]
    return Chart(
        title=f"Bytes to share {length} tokens over ranks: {model}",
        explanation="Bytes that the busiest rank sends per step for context parallelism, excluding parameter gradients; crosses are the closed "
                    "forms. A ring sends keys and values c - 1 times, so the fewer heads those have, the less it sends; with Ulysses, "
                    "each rank sends less as ranks are added. Methods that send the same share a line.",
        alt="Bytes sent to share sequences over ranks. " + (". ".join(crossings) or "No lines of Ulysses and a ring cross") + ".",
        figure=figure,
        columns=("method", "ranks", "query heads", "key/value heads", "sent bytes", "closed form"),
        rows=_bytes_rows(shared))


def _bytes_rows(points):
    return [(point.method, point.ranks, point.heads, point.kv_heads, point.exchanged_bytes, point.expected_exchanged_bytes)
            for point in points]


def _draw_crossover(axes, crossover, line):
    """A circle on the line of Ulysses, between the ranks around the crossover."""
    for before, after in zip(line, line[1:]):
        if before.ranks <= crossover.at <= after.ranks:
            share = math.log(crossover.at / before.ranks) / math.log(after.ranks / before.ranks)
            height = before.exchanged_bytes * (after.exchanged_bytes / before.exchanged_bytes) ** share
            axes.plot([crossover.at], [height], linestyle="", marker="o", markersize=11, markerfacecolor="none", color=INK)


def _bytes_bars(model, panels, lines, length):
    """With one number of ranks: a bar for each method."""
    figure = new_figure(width=3.6 + 3.6 * len(panels), height=1.3 + 0.36 * len(lines))
    all_axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    most = max(point.exchanged_bytes for own in panels.values() for point in own)
    for axes, ((heads, kv_heads), own) in zip(all_axes, panels.items()):
        by_method = {point.method: point for point in own}
        shown = [(place, by_method[methods[0]]) for place, methods in enumerate(lines.values()) if methods[0] in by_method]
        places = [place for place, _ in shown]
        axes.barh(places, [point.exchanged_bytes for _, point in shown], height=0.7,
                  color=[style_of(point.method)["color"] for _, point in shown])
        axes.plot([point.expected_exchanged_bytes for _, point in shown], places, linestyle="", marker="|", markersize=16,
                  markeredgewidth=2, color=REFERENCE["color"])
        axes.set_title(f"{heads} query heads, {kv_heads} key/value heads", loc="left", fontsize=10)
        axes.grid(axis="y", visible=False)
        axes.set_xlim(0, 1.08 * most)
        bytes_axis(axes.xaxis, most)
        axes.tick_params(axis="x", labelrotation=30)
    all_axes[0].set_yticks(range(len(lines)), list(lines), fontsize=8)
    all_axes[0].invert_yaxis()
    own = next(iter(panels.values()))
    return Chart(
        title=f"Bytes to share {length} tokens on {own[0].ranks} ranks: {model}",
        explanation="Bytes that the busiest rank sends per step for context parallelism, excluding parameter gradients; the mark is the closed "
                    "form. Methods that send the same share a bar.",
        alt="Bytes sent to share sequences: " + "; ".join(f"{name} {bytes_text(point.exchanged_bytes)}" for name, methods in lines.items()
                                                          for point in own if point.method == methods[0]) + ".",
        figure=figure,
        columns=("method", "ranks", "query heads", "key/value heads", "sent bytes", "closed form"),
        rows=_bytes_rows([point for points in panels.values() for point in points]))


def _axis_of(points):
    """What the points vary: (name, value of a point)."""
    if len({point.length for point in points}) > 1:
        return "length", lambda point: point.length
    if len({point.link_speed for point in points}) > 1 and all(point.link_speed for point in points):
        return "link", lambda point: point.link_speed
    return ("ranks", lambda point: point.ranks) if len({point.ranks for point in points}) > 1 else None


def _time_chart(setting, points):
    points = [point for point in points if point.ranks > 1]
    axis = _axis_of(points)
    if not axis:
        return _time_bars(setting, points)
    over, value = axis
    panels = grouped(points, lambda p: tuple(text for key, text in setting_text(p) if key != over))
    # If there are more, those of the most ranks.
    panels = dict(sorted(panels.items(), key=lambda item: -max(point.ranks for point in item[1]))[:MOST_PANELS])
    figure = new_figure(width=2.6 + 3.6 * len(panels), height=4.6)
    rows, fastest = [], []
    all_axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    methods = list(dict.fromkeys(point.method for own in panels.values() for point in own))
    for axes, (name, own) in zip(all_axes, panels.items()):
        base = {value(point): point.step_seconds for point in own if point.method == REFERENCE_METHOD}
        for method in methods:
            line = [point for point in ordered(own, method, value) if value(point) in base]
            axes.plot([value(point) for point in line], [point.step_seconds / base[value(point)] for point in line], label=method,
                      **style_of(method))
        rows += [(point.method, *(text for _, text in setting_text(point)), f"{1e3 * point.step_seconds:.3f}",
                  f"{100 * point.exposed_seconds / point.step_seconds:.1f}") for point in own]
        fastest += [f"{', '.join(name)}: " + ", ".join(_fastest(own, value, over))]
        values = {value(point) for point in own}
        if over == "length":
            tokens_axis(axes, values)
        elif over == "ranks":
            log2_axis(axes, values, "ranks")
        else:
            log2_axis(axes, values, "speed of the links")
            axes.xaxis.set_major_formatter(FuncFormatter(lambda speed, _: f"{speed / 1e9:g} GB/s"))
        axes.set_title("\n".join(name), loc="left", fontsize=9)
    all_axes[0].set_ylabel(f"time of a step, {REFERENCE_METHOD} = 1")
    legend(all_axes[-1], {method: [method] for method in methods})
    return Chart(
        title=f"Time of a step: {setting}",
        explanation=f"The time of a step of the slowest rank, relative to {REFERENCE_METHOD}; below 1 is faster.",
        alt="Fastest: " + "; ".join(fastest) + ".",
        figure=figure,
        columns=("method", *(key for key, _ in setting_text(points[0])), "step ms", "exposed %"),
        rows=rows)


def _fastest(points, value, over):
    """"ulysses at 4096 tokens" for each value."""
    unit = {"length": "tokens", "link": "GB/s", "ranks": "ranks"}[over]
    return [f"{min(own, key=lambda point: point.step_seconds).method} at {at / 1e9 if over == 'link' else at:g} {unit}"
            for at, own in sorted(grouped(points, value).items())]


def _time_bars(setting, points):
    """With one setting for each number of heads: a bar for each method, its exposed part hatched."""
    if not points:
        return None
    figure = new_figure(width=9, height=1.4 + 0.3 * len(points))
    axes = figure.subplots()
    several = len({(point.heads, point.kv_heads) for point in points}) > 1
    names = [point.method + f", {point.kv_heads} of {point.heads} heads" * several for point in points]
    axes.barh(range(len(points)), [1e3 * point.step_seconds for point in points], height=0.7,
              color=[style_of(point.method)["color"] for point in points])
    axes.barh(range(len(points)), [1e3 * point.exposed_seconds for point in points], height=0.7, facecolor="none", edgecolor="#ffffff",
              hatch="////", linewidth=0, left=[1e3 * (point.step_seconds - point.exposed_seconds) for point in points])
    for place, point in enumerate(points):
        axes.annotate(f"{time_text(1e6 * point.step_seconds)}, {100 * point.exposed_seconds / point.step_seconds:.0f} % exposed",
                      (1e3 * point.step_seconds, place), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8)
    axes.set_yticks(range(len(points)), names, fontsize=8)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set_xlim(0, 1.3e3 * max(point.step_seconds for point in points))
    axes.set_xlabel("time of a step (ms); hatched: waiting for messages or for slower ranks")
    first = points[0]
    return Chart(
        title=f"Time of a step of {first.length} tokens on {first.ranks} ranks: {setting}",
        explanation="The time of a step of the slowest rank. Hatched: the time that ranks wait for messages or slower ranks, averaged over ranks.",
        alt="Time of a step: " + ", ".join(f"{name} {time_text(1e6 * point.step_seconds)}" for name, point in zip(names, points)) + ".",
        figure=figure,
        columns=("method", "query heads", "key/value heads", "step ms", "exposed %"),
        rows=[(point.method, point.heads, point.kv_heads, f"{1e3 * point.step_seconds:.3f}",
               f"{100 * point.exposed_seconds / point.step_seconds:.1f}") for point in points])
