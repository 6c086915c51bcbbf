"""Time of collectives over the number of ranks, with their closed forms."""

from matplotlib.ticker import FuncFormatter

from chart import Chart, bytes_text, legend_beside, line_styles, new_figure, time_text, times_axis


def charts(results):
    """One for each operation, size and kind of time that was measured at several numbers of ranks."""
    groups = {}
    for run in results.benchmarks:
        for point in run.points():
            if point.best_place:
                link = run.link if run.clock != "wall" else ""
                groups.setdefault((point.operation, point.bytes, run.clock, link), []).append(point)
    return [_chart(*key, points) for key, points in sorted(groups.items()) if len({point.ranks for point in points}) > 1]


def _percent(share):
    return f"{round(share * 100, 2) + 0.0:+.2f}"  # no -0.00


def _who(operation):
    """Of a parameter server the workers are counted, which its servers come on top of."""
    return "workers" if operation == "ps" else "ranks"


def _chart(operation, size, clock, link, points):
    lines = {}
    for point in sorted(points, key=lambda point: point.ranks):
        name = point.name if point.transport in ("threads", "virtual") else f"{point.name}, {point.transport}"
        lines.setdefault(name, []).append(point)
    figure = new_figure(width=9, height=max(4.4, 1.2 + 0.22 * len(lines)))
    axes = figure.subplots()
    rows = []
    for (name, line), style in zip(lines.items(), line_styles(len(lines))):
        times = [point.values["p50_us"] for point in line]
        forms = [point.values["model_us"] for point in line]
        axes.plot([point.ranks for point in line], times, **{**style, "linestyle": ""})
        # Without a closed form there is nothing but the points to connect.
        axes.plot([point.ranks for point in line], forms if all(forms) else times, **{**style, "marker": "", "linewidth": 1.1})
        axes.plot([], [], label=name, **style)
        rows += [(name, point.ranks, f"{time:.6g}", f"{form:.6g}" if form else "-",
                  _percent(time / form - 1) if form else "-") for point, time, form in zip(line, times, forms)]
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda count, _: f"{count:.0f}"))
    axes.set_xlabel(_who(operation))
    times_axis(axes)
    axes.set_ylabel("time")
    legend_beside(axes)
    most = max(point.ranks for point in points)
    last = sorted((line[-1].values["p50_us"], name) for name, line in lines.items() if line[-1].ranks == most)
    kind = "real time" if clock == "wall" else f"virtual time, {link}"
    return Chart(
        title=f"{operation} of {bytes_text(size)} over {_who(operation)}: {kind}",
        explanation="Points are what the algorithm took, lines what its closed form says. An algorithm whose number of steps grows "
                    "with the ranks rises in a straight line; one that halves the distance each step rises with their logarithm.",
        alt=f"Time of {operation} of {bytes_text(size)} for {len(lines)} algorithms up to {most} {_who(operation)}. There: "
            + ", ".join(f"{name} {time_text(time)}" for time, name in last) + ".",
        figure=figure,
        columns=("algorithm", "ranks", "time µs", "closed form µs", "deviation %"),
        rows=rows)
