"""The ways to arrange ranks along tp, cp, pp and dp: step time and memory of each as heat maps; of several numbers of ranks, bars."""

from math import prod

from matplotlib.colors import LogNorm
from matplotlib.patches import Polygon, Rectangle
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter

from chart import COLOURS, INK, SOFT, Chart, bytes_text, legend_right, new_figure, time_text
from technique_points import AXES

CELL_WIDTH, CELL_HEIGHT = 0.62, 0.46  # inches
MOST_COLUMNS_SIDE_BY_SIDE = 9
MOST_CELLS_WITH_NUMBERS = 400
PARTS = {"compute": "computing", "bubble": "bubble", "tp": "exposed along tp", "cp": "exposed along cp", "dp": "exposed along dp",
         "pp": "exposed along pp"}


def charts(results):
    """Heat maps of the arrangements of one number of ranks; of several numbers, the fastest of each as bars."""
    return [_bars(run, points) if len({prod(point.lengths) for point in points}) > 1 else _chart(run, points)
            for run in results.benchmarks if (points := list(run.factorings()))]


def _timed(run):
    return "block" if run.data.get("per_block") else "step"


def _fitting(run, points):
    limit = run.data.get("memory_limit_bytes")
    return [point for point in points if limit is None or point.bytes <= limit]


def _within(run):
    limit = run.data.get("memory_limit_bytes")
    return f" within {bytes_text(limit)} a rank" if limit is not None else ""


def _table(run, points):
    return {"columns": ("tp", "cp", "pp", "dp", "micro-batches", _timed(run), *(f"{words} %" for words in PARTS.values()), "peak bytes"),
            "rows": [(*point.lengths, point.micro_batches, time_text(1e6 * point.step_seconds),
                      *(f"{100 * seconds / point.step_seconds:.1f}" for seconds in _parts(point)), point.bytes) for point in points]}


def _chart(run, points):
    refused, limit = run.refused_factorings(), run.data.get("memory_limit_bytes")
    all_lengths = [*(point.lengths for point in points), *refused]
    columns = sorted({lengths[:2] for lengths in all_lengths})
    rows = sorted({lengths[2] for lengths in all_lengths})
    ranks, timed, within = prod(points[0].lengths), _timed(run), _within(run)
    side_by_side = len(columns) <= MOST_COLUMNS_SIDE_BY_SIDE
    width, height = CELL_WIDTH * len(columns) + 2.2, CELL_HEIGHT * len(rows) + 1.2
    figure = new_figure(width=max(7, width * (2 if side_by_side else 1)), height=height * (1 if side_by_side else 2))
    panels = figure.subplots(1, 2) if side_by_side else figure.subplots(2, 1)
    fits = _fitting(run, points)
    best = fits[0] if fits else None
    too_large = {point.lengths for point in points if point not in fits}
    for axes, values, text, name in ((panels[0], {point.lengths: 1e6 * point.step_seconds for point in points}, time_text, f"time of a {timed}"),
                                     (panels[1], {point.lengths: point.bytes for point in points}, _short_bytes, "peak memory of a rank")):
        _draw(figure, axes, values, text, columns, rows)
        axes.set_title(name, loc="left")
        _mark(axes, columns, rows, too_large, best)
    return Chart(
        title=f"{ranks} ranks along tp, cp, pp and dp: {run.model}",
        explanation=f"Each cell is one arrangement of {ranks} ranks; dp takes the remaining ranks. The outlined cell is the fastest{within}"
                    + ("; cells with a dark corner need more memory." if limit is not None else ".") + " Empty cells have no plan.",
        alt=f"Fastest of {len(points)} arrangements{within}: {_words(best, timed)}." if best else
            f"None of {len(points)} arrangements fits{within}; the fastest is {_words(points[0], timed)}.",
        figure=figure, **_table(run, points))


def _bars(run, points):
    fits, fastest = _fitting(run, points), {}
    for point in fits or points:
        fastest.setdefault(prod(point.lengths), point)
    shown, timed, within = sorted(fastest.items()), _timed(run), _within(run) if fits else ""
    figure = new_figure(width=max(7, 0.75 * len(shown) + 2.5))
    axes = figure.subplots()
    bottoms = [0.0] * len(shown)
    for place, (key, words) in enumerate(PARTS.items()):
        heights = [1e3 * _parts(point)[place] for _, point in shown]
        if any(heights):
            axes.bar(range(len(shown)), heights, bottom=bottoms, width=0.7, color=COLOURS[place], label=words)
        bottoms = [bottom + height for bottom, height in zip(bottoms, heights)]
    axes.set_xticks(range(len(shown)), ["\n".join([f"{ranks}", *(f"{axis} {length}" for axis, length in zip(AXES, point.lengths) if length > 1)])
                                        for ranks, point in shown], fontsize=8)
    axes.set_xlabel("ranks")
    axes.set_ylabel(f"time of a {timed} (ms)")
    axes.set_ylim(0, 1.08 * max(bottoms))
    axes.grid(axis="x", visible=False)
    legend_right(axes)
    compute_bound = [ranks for ranks, point in shown if point.compute_seconds >= 0.9999 * point.step_seconds]
    return Chart(
        title=f"{shown[0][0]} to {shown[-1][0]} ranks: {run.model}",
        explanation=f"Each bar is the fastest arrangement of that many ranks{within}. What is not computing is time in which ranks wait.",
        alt=f"The fastest arrangements of {len(shown)} numbers of ranks{within}: "
            + (f"up to {max(compute_bound)} ranks, a {timed} is computing alone; " if compute_bound else f"no {timed} is computing alone; ")
            + f"the fastest is {_words(min(fastest.values(), key=lambda point: point.step_seconds), timed)}.",
        figure=figure, **_table(run, points))


def _parts(point):
    return point.compute_seconds, point.bubble_seconds, *(point.exposed[axis] for axis in ("tp", "cp", "dp", "pp"))


def _words(point, timed):
    return (f"tp {point.tp}, cp {point.cp}, pp {point.pp}, dp {point.dp} with {time_text(1e6 * point.step_seconds)} a {timed} and "
            f"{bytes_text(point.bytes)} on its busiest rank")


def _short_bytes(count):
    """18253611008 -> 17G"""
    for power, unit in ((30, "G"), (20, "M"), (10, "K")):
        if count >= 1 << power:
            return f"{count / (1 << power):.3g}{unit}"
    return f"{count:.0f}"


def _draw(figure, axes, values, text, columns, rows):
    cells = [[float("nan")] * len(columns) for _ in rows]
    for lengths, value in values.items():
        cells[rows.index(lengths[2])][columns.index(lengths[:2])] = value
    least, most = min(values.values()), max(values.values())
    norm = LogNorm(least, most if most > least else 2 * least)
    image = axes.imshow(cells, cmap="YlOrRd", norm=norm, aspect="auto")
    if len(columns) * len(rows) <= MOST_CELLS_WITH_NUMBERS:
        for lengths, value in values.items():
            axes.text(columns.index(lengths[:2]), rows.index(lengths[2]), f"{text(value)}\ndp {lengths[3]}", ha="center", va="center",
                      fontsize=7, color="white" if norm(value) > 0.65 else "black")
    bar = figure.colorbar(image, ax=axes, shrink=0.9, pad=0.02)
    bar.ax.yaxis.set_major_locator(LogLocator(base=2) if most >= 4 * least else FixedLocator([least, most]))
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: text(value)))
    bar.ax.yaxis.set_minor_formatter(NullFormatter())
    bar.ax.minorticks_off()
    has_sequences = any(cp > 1 for _, cp in columns)
    axes.set_xticks(range(len(columns)), [f"tp {tp}" + f"\ncp {cp}" * has_sequences for tp, cp in columns], fontsize=8)
    axes.set_yticks(range(len(rows)), [f"pp {pp}" for pp in rows], fontsize=8)
    axes.grid(visible=False)
    axes.tick_params(length=0)
    for place in range(1, len(columns)):
        if columns[place][0] != columns[place - 1][0]:
            axes.axvline(place - 0.5, color=SOFT, linewidth=0.6)


def _mark(axes, columns, rows, too_large, fastest):
    for lengths in too_large:
        x, y = columns.index(lengths[:2]), rows.index(lengths[2])
        axes.add_patch(Polygon([(x + 0.5, y - 0.5), (x + 0.5, y), (x + 0.22, y - 0.5)], facecolor=INK, edgecolor="none"))
    if fastest:
        axes.add_patch(Rectangle((columns.index(fastest.lengths[:2]) - 0.48, rows.index(fastest.pp) - 0.48), 0.96, 0.96, fill=False,
                                 edgecolor=INK, linewidth=2.2))
