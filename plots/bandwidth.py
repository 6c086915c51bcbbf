"""Time and bus bandwidth of collectives over the size of the message."""

from matplotlib.ticker import FuncFormatter

from chart import REFERENCE, Chart, bytes_text, legend_beside, new_figure


def charts(results):
    operations = sorted({point.operation for run in results.benchmarks for point in run.points()})
    return [_chart(operation, results) for operation in operations]


def _name(point):
    algorithm = "the library's own" if point.algorithm == "vendor" else point.algorithm
    return f"{algorithm}, {point.transport}, {point.ranks} ranks"


def _chart(operation, results):
    lines = {}
    for run in results.benchmarks:
        for point in run.points():
            if point.operation == operation and point.in_place:
                lines.setdefault(_name(point), []).append(point)
    figure = new_figure(width=11)
    times, speeds = figure.subplots(1, 2)
    rows = []
    for name, points in lines.items():
        points.sort(key=lambda point: point.bytes)
        sizes = [point.bytes for point in points]
        (line,) = times.plot(sizes, [point.values["p50_us"] for point in points], label=name)
        times.fill_between(sizes, [point.values["min_us"] for point in points],
                           [point.values["p90_us"] for point in points], color=line.get_color(), alpha=0.15, linewidth=0)
        # One rank moves nothing, which a logarithmic axis cannot show.
        speeds.plot(sizes, [point.values["busbw_gb_per_s"] or float("nan") for point in points], label=name)
        rows += [(name, bytes_text(point.bytes), f"{point.values['p50_us']:.1f}", f"{point.values['p90_us']:.1f}",
                  f"{point.values['algbw_gb_per_s']:.2f}", f"{point.values['busbw_gb_per_s']:.2f}",
                  f"{point.values['wrong']:.0f}") for point in points]
    for bandwidth in sorted({run.memory_bandwidth for run in results.benchmarks if list(run.points())})[-1:]:
        speeds.axhline(bandwidth / 1e9, label="memory, all ranks copying", **{**REFERENCE, "marker": ""})
    for axes, name in ((times, "time (µs), median; band: least to 90 %"), (speeds, "bus bandwidth (GB/s)")):
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda count, _: bytes_text(count)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.tick_params(axis="x", labelrotation=30)
        axes.set_xlabel("bytes of each rank")
        axes.set_ylabel(name)
    legend_beside(speeds)
    best = max((float(row[5]), row[0], row[1]) for row in rows)
    wrong = sum(point.values["wrong"] for points in lines.values() for point in points)
    return Chart(
        title=f"Bandwidth of {operation}",
        explanation="In place; the slowest rank's time, median of the iterations. Bus bandwidth is what each rank would need "
                    "of a link that the ring keeps busy: bytes / time, times 2 (P - 1) / P for an all-reduce. The dashed line "
                    "is what all ranks together read and write when they only copy, measured in the same run; messages that "
                    "fit the caches may pass it.",
        alt=f"Time and bus bandwidth of {operation} over message size for {', '.join(lines)}. "
            f"Highest: {best[0]:.2f} GB/s with {best[1]} at {best[2]}. Wrong elements: {wrong:.0f}.",
        figure=figure,
        columns=("algorithm, transport, ranks", "size", "median µs", "90 % µs", "algbw GB/s", "busbw GB/s", "wrong"),
        rows=rows)
