"""Latency and bandwidth fitted to the measured times of collectives, and the deviation of each time from the fit."""

from matplotlib.ticker import FuncFormatter

from chart import REFERENCE, Chart, bytes_text, legend_right, line_styles, new_figure, sizes_axis, time_text, times_axis
from collective_points import by_operation_and_ranks, lines_of, setting_of

# Two parameters fit any two points.
FEWEST_SIZES = 4


def charts(results):
    return [chart for operation, points in by_operation_and_ranks(results) for chart in _charts(operation, points)]


def alpha_beta(sizes, times):
    """The a, b >= 0 that minimise the relative deviations of a + b n from the times."""
    weights = [1 / time**2 for time in times]

    def total(*factors):
        return sum(weight * product for weight, product in zip(weights, map(_product, zip(*factors))))

    ones = [1.0] * len(sizes)
    w, n, nn = total(ones), total(sizes), total(sizes, sizes)
    t, nt = total(times), total(sizes, times)
    determinant = w * nn - n * n
    a, b = (t * nn - n * nt) / determinant, (w * nt - n * t) / determinant
    if a < 0:
        return 0.0, nt / nn
    if b < 0:
        return t / w, 0.0
    return a, b


def _product(factors):
    result = 1.0
    for factor in factors:
        result *= factor
    return result


def _charts(operation, points):
    lines = {name: line for name, line in lines_of(points).items() if len(line) >= FEWEST_SIZES}
    if not lines:
        return []
    figure = new_figure(width=11, height=max(4.2, 1.2 + 0.22 * len(lines)))
    times, residuals = figure.subplots(1, 2)
    rows, worst = [], []
    for (name, line), style in zip(lines.items(), line_styles(len(lines))):
        sizes, measured = [point.bytes for point in line], [point.values["p50_us"] for point in line]
        alpha, beta = alpha_beta(sizes, measured)
        fitted = [alpha + beta * size for size in sizes]
        off = [(time / fit - 1) * 100 for time, fit in zip(measured, fitted)]
        times.plot(sizes, measured, **{**style, "linestyle": ""})
        times.plot(sizes, fitted, **{**style, "marker": ""})
        residuals.plot(sizes, [1 + share / 100 for share in off], label=name, **style)
        rows.append((name, f"{alpha:.3g}", f"{1e-3 / beta:.3g}" if beta > 0 else "-", f"{max(off, key=abs):+.1f}",
                     bytes_text(sizes[off.index(max(off, key=abs))])))
        worst.append((abs(max(off, key=abs)), name))
    residuals.axhline(1, **{**REFERENCE, "marker": ""})
    for axes in (times, residuals):
        sizes_axis(axes)
    times_axis(times)
    times.set_ylabel("time: points measured, lines fitted")
    # Twice and half the fitted time are equally far from it.
    residuals.set_yscale("log", base=2)
    residuals.yaxis.set_major_formatter(FuncFormatter(lambda ratio, _: f"{ratio:.3g}"))
    low, high = residuals.get_ylim()
    residuals.set_ylim(min(low, 0.5), max(high, 2))  # so that rounding does not look like a deviation
    residuals.set_ylabel("measured time over fitted time")
    legend_right(residuals)
    return [Chart(
        title=f"Latency and bandwidth of {operation}: {setting_of(points)}",
        explanation="Each algorithm's times and the line a + b n with the smallest relative deviations: a is the time of "
                    "an empty message, 1 / b the bandwidth of a large one. On the right, each time over "
                    "that of its line: a bend indicates a cache size, or a protocol switch in the library.",
        alt=f"Fits of {operation}: " + "; ".join(f"{row[0]} {time_text(float(row[1]))} and {row[2]} GB/s" for row in rows) +
            f". Farthest from its line: {max(worst)[1]}, {max(worst)[0]:.0f} %.",
        figure=figure,
        columns=("algorithm", "a, µs", "1 / b, GB/s", "largest deviation %", "at"),
        rows=rows)]
