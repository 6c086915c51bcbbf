"""Time of collectives over the number of ranks, with their closed forms."""

import math

from matplotlib.ticker import FuncFormatter

from chart import REFERENCE, Chart, bytes_text, legend_right, line_styles, nested_widths, new_figure, time_text, times_axis

REAL = ", real"  # ends the name of a line of measured times


def charts(results):
    """One chart for each operation, size and clock with several numbers of ranks. Points simulated on a single link share a
    chart with points measured in real time."""
    groups = {}
    for run in results.benchmarks:
        for point in run.points():
            if point.best_place:
                link = run.link if run.clock != "wall" else ""
                groups.setdefault((point.operation, point.bytes), {}).setdefault((run.clock, link), []).append(point)
    found = []
    for (operation, size), kinds in sorted(groups.items()):
        real = [points for (clock, _), points in kinds.items() if clock == "wall"]
        if real and len(kinds) == 2:
            (clock, link), simulated = next(item for item in kinds.items() if item[0][0] != "wall")
            found.append(_chart(operation, size, f"real time and virtual time, {_words(link)}", simulated, real[0]))
            continue
        for (clock, link), points in sorted(kinds.items()):
            found.append(_chart(operation, size, "real time" if clock == "wall" else f"virtual time, {_words(link)}", points))
    return [chart for chart in found if chart]


def _words(link):
    """"alpha=2.5e-05,beta=8e-10" -> "alpha=25 µs, beta=1.25 GB/s" """
    words = []
    for key, value in (item.split("=") for item in link.split(",") if item):
        number = float(value)
        if key.endswith("alpha"):
            words.append(f"{key}={time_text(1e6 * number)}")
        elif key.endswith("beta") and number > 0:
            words.append(f"{key}={1e-9 / number:.4g} GB/s")
        else:
            words.append(f"{key}={number:.4g}")
    return ", ".join(words)


def _percent(share):
    return f"{round(share * 100, 2) + 0.0:+.2f}"  # no -0.00


def _who(operation):
    """The unit of the axis: for a parameter server the workers, without the servers."""
    return "workers" if operation == "ps" else "ranks"


def _lines(points, suffix, forms):
    """(name, algorithm, points, closed forms) of each line. Real points use the simulated ones' closed forms, if any."""
    lines = {}
    for point in sorted(points, key=lambda point: point.ranks):
        name = point.name if suffix or point.transport in ("threads", "virtual") else f"{point.name}, {point.transport}"
        lines.setdefault(name, []).append(point)
    return [(name + suffix, name, line, [forms.get((point.name, point.ranks), point.values["model_us"]) for point in line])
            for name, line in lines.items()]


def _draw_deviations(axes, lines, styles):
    """A group of bars for each number of ranks: real times over their closed forms."""
    real = [(algorithm, line, formulas) for name, algorithm, line, formulas in lines if name.endswith(REAL) and all(formulas)]
    for place, (algorithm, line, formulas) in enumerate(real):
        shift = 2 ** (0.09 * (place - (len(real) - 1) / 2))  # side by side on the logarithmic axis
        axes.bar([point.ranks * shift for point in line],
                 [100 * (point.values["p50_us"] / form - 1) for point, form in zip(line, formulas)],
                 width=[0.055 * point.ranks for point in line], color=styles[algorithm]["color"])
    axes.axhline(0, **REFERENCE)
    axes.set_ylabel("real time over\nclosed form, %")


def _draw_times(axes, lines, styles):
    """Points and closed forms; of lines that overlap, the first is widest. Real times are large empty markers."""
    simulated = [line for line in lines if not line[0].endswith(REAL)]
    # Times that differ by less than about 1 % overlap.
    drawn = [[(point.ranks, round(70 * math.log(form or point.values["p50_us"]))) for point, form in zip(line, formulas)]
             for _, _, line, formulas in simulated]
    widths = dict(zip((name for name, *_ in simulated), nested_widths(drawn)))
    for name, algorithm, line, formulas in lines:
        style = styles[algorithm]
        ranks, times = [point.ranks for point in line], [point.values["p50_us"] for point in line]
        if name in widths:
            axes.plot(ranks, times, **{**style, "linestyle": "", "markersize": 3 + 1.5 * widths[name]})
            # Without a closed form the line connects the points.
            axes.plot(ranks, formulas if all(formulas) else times, **{**style, "marker": "", "linewidth": widths[name]})
        else:
            axes.plot(ranks, times, **{**style, "linestyle": "", "markersize": 11, "markerfacecolor": "none"})


def _rows(lines):
    return [(name, point.ranks, f"{point.values['p50_us']:.6g}", f"{form:.6g}" if form else "-",
             _percent(point.values["p50_us"] / form - 1) if form else "-")
            for name, _, line, formulas in lines for point, form in zip(line, formulas)]


def _chart(operation, size, kind, points, real=()):
    if len({point.ranks for point in [*points, *real]}) < 2:
        return None
    forms = {(point.name, point.ranks): point.values["model_us"] for point in points}
    lines = _lines(points, "", forms) + _lines(real, REAL, forms)
    algorithms = list(dict.fromkeys(algorithm for _, algorithm, _, _ in lines))
    styles = dict(zip(algorithms, line_styles(len(algorithms))))
    figure = new_figure(width=9, height=max(4.4, 1.2 + 0.22 * len(algorithms)) + (2.0 if real else 0))
    panels = figure.subplots(2 if real else 1, 1, squeeze=False, sharex=True, height_ratios=[2, 1] if real else [1])[:, 0]
    axes = panels[0]
    _draw_times(axes, lines, styles)
    for algorithm, style in styles.items():
        axes.plot([], [], label=algorithm, **style)
    if real:
        axes.plot([], [], **{**REFERENCE, "linestyle": ""}, marker="o", markersize=11, markerfacecolor="none", label="large, empty: real time")
        _draw_deviations(panels[1], lines, styles)
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted({point.ranks for _, _, line, _ in lines for point in line}))
    axes.minorticks_off()
    axes.xaxis.set_major_formatter(FuncFormatter(lambda count, _: f"{count:.0f}"))
    panels[-1].set_xlabel(_who(operation))
    times_axis(axes)
    axes.set_ylabel("time")
    legend_right(axes)
    most = max(point.ranks for _, _, line, _ in lines for point in line)
    last = sorted((line[-1].values["p50_us"], name) for name, _, line, _ in lines if line[-1].ranks == most)
    return Chart(
        title=f"{operation} of {bytes_text(size)} over {_who(operation)}: {kind}",
        explanation="Points are the times of the algorithms, lines their closed forms. " +
                    ("Below, by how much real time is longer than its closed form. " if real else "") + "An algorithm whose number of steps "
                    "is proportional to the ranks rises linearly; one that halves the distance in each step rises with "
                    "their logarithm.",
        alt=f"Time of {operation} of {bytes_text(size)} for {len(lines)} algorithms up to {most} {_who(operation)}. There: "
            + ", ".join(f"{name} {time_text(time)}" for time, name in last) + ".",
        figure=figure,
        columns=("algorithm", "ranks", "time µs", "closed form µs", "deviation %"),
        rows=_rows(lines))
