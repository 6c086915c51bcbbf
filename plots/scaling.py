"""Time of collectives over the number of ranks, with their closed forms."""

from matplotlib.ticker import FuncFormatter

from chart import Chart, bytes_text, legend_right, line_styles, new_figure, time_text, times_axis


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
            found.append(_chart(operation, size, f"real time and virtual time, {link}", simulated, real[0]))
            continue
        for (clock, link), points in sorted(kinds.items()):
            found.append(_chart(operation, size, "real time" if clock == "wall" else f"virtual time, {link}", points))
    return [chart for chart in found if chart]


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


def _chart(operation, size, kind, points, real=()):
    if len({point.ranks for point in [*points, *real]}) < 2:
        return None
    forms = {(point.name, point.ranks): point.values["model_us"] for point in points}
    lines = _lines(points, "", forms) + _lines(real, ", real", forms)
    styles = {}
    for _, algorithm, _, _ in lines:
        styles.setdefault(algorithm, None)
    styles = dict(zip(styles, line_styles(len(styles))))
    figure = new_figure(width=9, height=max(4.4, 1.2 + 0.22 * len(lines)))
    axes = figure.subplots()
    rows = []
    for name, algorithm, line, formulas in lines:
        style = styles[algorithm]
        if name.endswith(", real"):  # a ring around the simulated point if both agree
            style = {**style, "markersize": 11, "markerfacecolor": "none"}
        times = [point.values["p50_us"] for point in line]
        axes.plot([point.ranks for point in line], times, **{**style, "linestyle": ""})
        # Without a closed form the line connects the points.
        axes.plot([point.ranks for point in line], formulas if all(formulas) else times,
                  **{**style, "marker": "", "linewidth": 1.1})
        axes.plot([], [], label=name, **style)
        rows += [(name, point.ranks, f"{time:.6g}", f"{form:.6g}" if form else "-",
                  _percent(time / form - 1) if form else "-") for point, time, form in zip(line, times, formulas)]
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted({point.ranks for _, _, line, _ in lines for point in line}))
    axes.minorticks_off()
    axes.xaxis.set_major_formatter(FuncFormatter(lambda count, _: f"{count:.0f}"))
    axes.set_xlabel(_who(operation))
    times_axis(axes)
    axes.set_ylabel("time")
    legend_right(axes)
    most = max(point.ranks for _, _, line, _ in lines for point in line)
    last = sorted((line[-1].values["p50_us"], name) for name, _, line, _ in lines if line[-1].ranks == most)
    return Chart(
        title=f"{operation} of {bytes_text(size)} over {_who(operation)}: {kind}",
        explanation="Points are the times of the algorithms, lines their closed forms. An algorithm whose number of steps "
                    "is proportional to the ranks rises linearly; one that halves the distance in each step rises with "
                    "their logarithm.",
        alt=f"Time of {operation} of {bytes_text(size)} for {len(lines)} algorithms up to {most} {_who(operation)}. There: "
            + ", ".join(f"{name} {time_text(time)}" for time, name in last) + ".",
        figure=figure,
        columns=("algorithm", "ranks", "time µs", "closed form µs", "deviation %"),
        rows=rows)
