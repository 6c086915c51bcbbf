"""Time and bus bandwidth of collectives over the size of the message."""

import math

from matplotlib.ticker import FuncFormatter

from chart import INK, REFERENCE, Chart, bytes_text, legend_right, line_styles, new_figure, sizes_axis, time_text, times_axis
from collective_points import by_operation_and_ranks, lines_of, setting_of

# The smallest change that `lockstep compare` reports.
EFFECT = 0.05


def charts(results):
    return [_chart(operation, points, results) for operation, points in by_operation_and_ranks(results)]


def crossovers(lines):
    """The sizes at which the fastest line changes: (bytes, time, fastest before, fastest after)."""
    times = {name: {point.bytes: point.values["p50_us"] for point in points} for name, points in lines.items()}
    sizes = sorted({size for line in times.values() for size in line})

    def fastest(size):
        return min((line[size], name) for name, line in times.items() if size in line)[1]

    found = []
    for size, larger in zip(sizes, sizes[1:]):
        was, now = fastest(size), fastest(larger)
        if was == now or larger not in times[was] or size not in times[now]:
            continue
        # Between the two sizes, both lines are straight on logarithmic axes.
        ahead, behind = (math.log(times[now][at] / times[was][at]) for at in (size, larger))
        share = ahead / (ahead - behind) if ahead > behind else 0.5
        found.append((size * (larger / size) ** share, times[was][size] * (times[was][larger] / times[was][size]) ** share,
                      was, now))
    return found


def ratios(lines):
    """For measurements in several files, the times of each later file relative to the first: {line: [(bytes, ratio)]}."""
    first, found = {}, {}
    for name, line in lines.items():
        base = first.setdefault(line[0].measured, line)
        if base is line:
            continue
        before = {point.bytes: point.values["p50_us"] for point in base}
        shared = [(point.bytes, point.values["p50_us"] / before[point.bytes]) for point in line if before.get(point.bytes)]
        if shared:
            found[name] = shared
    return found


def _draw_ratios(axes, changes, styles):
    """`styles`: of each line, by name."""
    axes.axhspan(1 / (1 + EFFECT), 1 + EFFECT, color="#eeeeee", zorder=0)
    axes.axhline(1, **{**REFERENCE, "marker": ""})
    for name, line in changes.items():
        axes.plot(*zip(*line), **styles[name])
    sizes_axis(axes)
    axes.set_ylabel(f"time / the first file's time; grey: within {EFFECT:.0%}")


def _draw_crossovers(times, speeds, found):
    around = {"linestyle": "", "marker": "o", "markersize": 10, "markerfacecolor": "none", "markeredgecolor": INK}
    times.plot([at for at, *_ in found], [time for _, time, *_ in found], zorder=9, **around)
    speeds.plot([], [], label="another is fastest from here", **around)


def _range(line):
    """The smallest and the largest ratio: "97 to 104 %"."""
    least, most = (f"{end(ratio for _, ratio in line) * 100:.0f}" for end in (min, max))
    return f"{least} %" if least == most else f"{least} to {most} %"


def _row(name, point):
    values = point.values
    # Few samples carry no 90th percentile.
    p90 = f"{values['p90_us']:.1f}" if "p90_us" in values else "-"
    return (name, bytes_text(point.bytes), f"{values['p50_us']:.1f}", p90, f"{values['algbw_gb_per_s']:.2f}",
            f"{values['busbw_gb_per_s']:.2f}", f"{values['wrong']:.0f}")


def _chart(operation, points, results):
    lines = lines_of(points)
    changes = ratios(lines)
    figure = new_figure(width=15 if changes else 11, height=max(4.2, 1.2 + 0.22 * len(lines)))
    times, *rest, speeds = figure.subplots(1, 3 if changes else 2)
    styles = dict(zip(lines, line_styles(len(lines))))
    if changes:  # lines of two files often coincide
        styles = {name: {**style, "linewidth": 1.6 if name in changes else 4} for name, style in styles.items()}
    rows = []
    for name, line in lines.items():
        style = styles[name]
        sizes = [point.bytes for point in line]
        times.plot(sizes, [point.values["p50_us"] for point in line], label=name, **style)
        if all("p90_us" in point.values for point in line):
            times.fill_between(sizes, [point.values["min_us"] for point in line],
                               [point.values["p90_us"] for point in line], color=style["color"], alpha=0.1, linewidth=0)
        # One rank moves no bytes; a logarithmic axis has no zero.
        speeds.plot(sizes, [point.values["busbw_gb_per_s"] or float("nan") for point in line], label=name, **style)
        rows += [_row(name, point) for point in line]
    # Under a virtual clock a copy takes no time.
    for bandwidth in sorted({run.memory_bandwidth for run in results.benchmarks if list(run.points()) and run.clock == "wall"})[-1:]:
        speeds.axhline(bandwidth / 1e9, label="memory, all ranks copying", **{**REFERENCE, "marker": ""})
    # With two files, the fastest would differ between the files.
    found = [] if changes else crossovers(lines)
    if found:
        _draw_crossovers(times, speeds, found)
    for axes in rest:
        _draw_ratios(axes, changes, styles)
    for axes in (times, speeds):
        sizes_axis(axes)
    times_axis(times)
    times.set_ylabel("time, median; band: least to 90 %")
    speeds.set_yscale("log")
    speeds.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    speeds.set_ylabel("bus bandwidth (GB/s)")
    legend_right(speeds)
    best = max((float(row[5]), row[0], row[1]) for row in rows)
    wrong = sum(max(0, point.values["wrong"]) for line in lines.values() for point in line)
    crossings = "; ".join(f"{now} becomes faster than {was} at {bytes_text(round(at))}, {time_text(time)}" for at, time, was, now in found)
    return Chart(
        title=f"Bandwidth of {operation}: {setting_of(points)}",
        explanation="In-place if the operation supports it; the slowest rank's time, median of the iterations. Bus "
                    "bandwidth is the link bandwidth per rank with which a ring would take this time: bytes / time, "
                    "times 2 (P - 1) / P for an all-reduce. Where several files measured the same, each has its line, and the ratio "
                    "of their times is on the right. The dashed line is the rate at which all ranks together copy "
                    "the largest message, measured in the same run; smaller messages may exceed it in the caches.",
        alt=f"Time and bus bandwidth of {operation} over message size for {', '.join(lines)}. "
            f"Highest: {best[0]:.2f} GB/s with {best[1]} at {best[2]}. " + (f"{crossings[0].upper()}{crossings[1:]}. " if crossings else "") +
            "".join(f"{name}: {_range(line)} of the first file's time. " for name, line in changes.items()) +
            f"Wrong elements: {wrong:.0f}.",
        figure=figure,
        columns=("algorithm", "size", "median µs", "90 % µs", "algbw GB/s", "busbw GB/s", "wrong"),
        rows=rows)
