"""The time of a step of sharded data parallelism: over the speed of links, with crossovers, or by strategy."""

import math

from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from chart import COLOURS, MARKERS, REFERENCE, SOFT, Chart, legend_right, line_styles, new_figure, time_text, times_axis

REFERENCES = ("ddp", "tp")


def charts(model, roofline, points, crossovers):
    points = [point for point in points if point.step_seconds is not None]
    if not points:
        return []
    if len({point.link_speed for point in points}) > 1 and all(point.link_speed for point in points):
        return [_speed_chart(model, roofline, points, crossovers)]
    return [_bars_chart(model, points)]


def _line(points, **wanted):
    return sorted((point for point in points if all(getattr(point, key) == value for key, value in wanted.items())),
                  key=lambda point: point.link_speed)


def _alike(points):
    """Groups strategies whose steps take the same time everywhere."""
    groups = {}
    for strategy in dict.fromkeys(point.strategy for point in points):
        times = frozenset((point.ranks, point.link, float(f"{point.step_seconds:.9g}")) for point in points
                          if point.strategy == strategy)
        groups.setdefault(times, []).append(strategy)
    return list(groups.values())


def _speed_text(speed):
    return f"{speed / 1e9:g} GB/s" if speed >= 1e9 else f"{speed / 1e6:g} MB/s"


def _speed_chart(model, roofline, points, crossovers):
    """For each number of ranks the time, and below it the time relative to the reference: there lines that cross can be seen."""
    groups, ranks = _alike(points), sorted({point.ranks for point in points})
    reference = next((name for name in REFERENCES if any(point.strategy == name for point in points)), groups[0][0])
    styles = {strategy: {**style, "marker": MARKERS[i % len(MARKERS)]} for group, (i, style) in zip(
        groups, enumerate(line_styles(len(groups)))) for strategy in group}
    figure = new_figure(width=4.2 + 4.2 * len(ranks), height=7.2)
    panels = figure.subplots(2, len(ranks), sharex=True, sharey="row", squeeze=False, height_ratios=[1, 1.3])
    for (times, ratios), count in zip(zip(*panels), ranks):
        base = {point.link_speed: point.step_seconds for point in _line(points, ranks=count, strategy=reference)}
        for group in groups:
            line = _line(points, ranks=count, strategy=group[0])
            times.plot([point.link_speed for point in line], [1e6 * point.step_seconds for point in line], **styles[group[0]],
                       label=", ".join(group))
            compared = [point for point in line if point.link_speed in base]
            ratios.plot([point.link_speed for point in compared], [point.step_seconds / base[point.link_speed] for point in compared],
                        **styles[group[0]], label=", ".join(group))
        for crossover in crossovers:
            if crossover.ranks == count and crossover.strategy in styles:
                _draw_crossover(ratios, crossover, _line(points, ranks=count, strategy=crossover.strategy), base,
                                styles[crossover.strategy]["color"])
        times.set_title(f"{count} ranks", loc="left")
        ratios.set_xlabel("speed of the links")
    times_axis(panels[0][0])
    panels[0][0].set_ylabel("time of a step")
    # Crossovers are interpolated on logarithmic scales, so there they lie on the lines.
    panels[1][0].set_yscale("log")
    panels[1][0].yaxis.set_major_locator(MaxNLocator(8))
    panels[1][0].yaxis.set_major_formatter(FuncFormatter(lambda ratio, _: f"{ratio:.3g}"))
    panels[1][0].set_ylabel(f"time, {reference} = 1")
    for axes in panels.flat:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda speed, _: _speed_text(speed)))
        axes.minorticks_off()
    handles = [Line2D([], [], **styles[group[0]], label=",\n".join(group)) for group in groups]
    legend_right(panels[0][-1], handles=[*handles, Line2D([], [], color=SOFT, linestyle="", marker="o", markersize=11,
                                                          markerfacecolor="none", label="ring: crossover")])
    found = [f"on {c.ranks} ranks {c.strategy} is faster than {c.reference} {'above' if c.is_faster_above else 'below'} "
             f"{_speed_text(float(f'{c.bytes_per_s:.3g}'))}" for c in crossovers]
    return Chart(
        title=f"Time of a step over the speed of links: {model}" + (f"; ranks of {roofline}" if roofline else ""),
        explanation=f"Above, the time of a step; below, relative to {reference}. On slow links traffic dominates: stage 3 takes up to "
                    "1.5 times as long as ddp. On fast links compute dominates: a rank of ZeRO or FSDP updates only its shard. Tensor "
                    "parallelism sends activations instead of parameters. Rings are crossovers with ddp and tp, interpolated "
                    "between the speeds. Strategies with the same times share a line.",
        alt="Time of a step over the speed of links. " + ("Crossovers: " + "; ".join(found) if found else "No lines cross") + ".",
        figure=figure,
        columns=("strategy", "ranks", "link", "step ms", f"of {reference}"),
        rows=[(point.strategy, point.ranks, point.link, f"{1e3 * point.step_seconds:.3f}", _ratio(point, points, reference))
              for point in points])


def _draw_crossover(axes, crossover, line, base, colour):
    """A ring on the strategy's line, between the speeds around the crossover."""
    compared = [(point.link_speed, point.step_seconds / base[point.link_speed]) for point in line if point.link_speed in base]
    for (slow, before), (fast, after) in zip(compared, compared[1:]):
        if slow <= crossover.bytes_per_s <= fast:
            share = math.log(crossover.bytes_per_s / slow) / math.log(fast / slow)
            axes.plot([crossover.bytes_per_s], [before * (after / before) ** share], linestyle="", marker="o", markersize=11,
                      markerfacecolor="none", color=colour, label=f"{crossover.strategy} crosses {crossover.reference}")
            return


def _ratio(point, points, reference):
    base = [other.step_seconds for other in points if (other.strategy, other.ranks, other.link) == (reference, point.ranks, point.link)]
    return f"{point.step_seconds / base[0]:.3f}" if base else "-"


def _bars_chart(model, points):
    """A bar for each strategy, ranks and link."""
    figure = new_figure(width=9, height=1.2 + 0.26 * len(points))
    axes = figure.subplots()
    several_links = len({point.link for point in points}) > 1
    names = [f"{point.strategy}, {point.ranks} ranks" + f", {point.link}" * several_links for point in points]
    sizes = sorted({point.ranks for point in points})
    axes.barh(range(len(points)), [1e3 * point.step_seconds for point in points], height=0.7,
              color=[COLOURS[sizes.index(point.ranks) % len(COLOURS)] for point in points])
    for place, point in enumerate(points):
        axes.annotate(time_text(1e6 * point.step_seconds), (1e3 * point.step_seconds, place), xytext=(4, 0),
                      textcoords="offset points", va="center", fontsize=8)
    for reference in (point for point in points if point.strategy == "ddp"):
        own = [place for place, point in enumerate(points) if (point.ranks, point.link) == (reference.ranks, reference.link)]
        axes.plot([1e3 * reference.step_seconds] * 2, [min(own) - 0.4, max(own) + 0.4], **REFERENCE, marker="")
    axes.set_yticks(range(len(points)), names, fontsize=8)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set_xlim(0, 1.15e3 * max(point.step_seconds for point in points))
    axes.set_xlabel("time of the median step (ms); dashed: ddp")
    return Chart(
        title=f"Time of a step by strategy: {model}",
        explanation="The time of a step of the slowest rank. The dashed line is ddp on as many ranks.",
        alt="Time of a step: " + ", ".join(f"{name} {time_text(1e6 * point.step_seconds)}" for name, point in zip(names, points)) + ".",
        figure=figure,
        columns=("strategy", "ranks", "link", "step ms", "of ddp"),
        rows=[(point.strategy, point.ranks, point.link, f"{1e3 * point.step_seconds:.3f}", _ratio(point, points, "ddp"))
              for point in points])
