"""Latency and bandwidth of the links between all pairs of ranks, with the links and ranks that are slow."""

from matplotlib.colors import LogNorm
from matplotlib.patches import Rectangle

from chart import COLOURS, SOFT, Chart, new_figure

MOST_RANKS_WITH_NUMBERS = 12
SLOW = COLOURS[1]
TITLES = {"latency": "latency", "one way": "bandwidth", "both ways": "bandwidth, both ways at once"}


def charts(results):
    return [chart for run in results.benchmarks for chart in charts_of(run, results)]


def charts_of(run, results):
    return [_chart(run, len(results.benchmarks) > 1)] if panels(run) else []


def panels(run):
    """[(measurement, unit, {(from, to): value}, {(from, to): time relative to the fastest link})]; links without cost are left out."""
    latency, one_way, both_ways = {}, {}, {}
    for link in run.links():
        pair, back = (link["from"], link["to"]), (link["to"], link["from"])
        latency[pair] = latency[back] = link["latency_us"]
        both_ways[pair] = both_ways[back] = link["both_ways_gb_per_s"]
        one_way[pair], one_way[back] = link["gb_per_s"], link["back_gb_per_s"]
    found = []
    for measurement, unit, values in (("latency", "µs", latency), ("one way", "GB/s", one_way), ("both ways", "GB/s", both_ways)):
        values = {pair: value for pair, value in values.items() if value > 0}
        if values:
            fastest = min(values.values()) if unit == "µs" else max(values.values())
            found.append((measurement, unit, values, {pair: value / fastest if unit == "µs" else fastest / value for pair, value in values.items()}))
    return found


def slow_cells(run, measurement):
    """The cells of a measurement that are slow: of a unit its row, its column, or both."""
    for slow in run.slow_links():
        a, b, part = slow["from"], slow["to"], slow["part"]
        if measurement not in slow["ratios"]:
            continue
        if a != b:
            yield from ((a, b),) if part == "one_way" else ((a, b), (b, a))
            continue
        ends = [(link["from"], link["to"]) for link in run.links() if link["in_host"] == slow["in_host"] and a in (link["from"], link["to"])]
        others = [first + second - a for first, second in ends]
        yield from ((a, other) for other in others if part != "receiving")
        yield from ((other, a) for other in others if part != "sending")


def _chart(run, several):
    drawn, ranks = panels(run), len(run.data["ranks"])
    size = min(9.0, max(3.4, 0.42 * ranks))
    figure = new_figure(width=max(4.5, (size + 0.4) * len(drawn)), height=size + 0.7)
    for place, (measurement, unit, values, times) in enumerate(drawn):
        axes = figure.add_subplot(1, len(drawn), place + 1)
        _draw(figure, axes, values, times, ranks)
        _mark(axes, run, measurement)
        axes.set_title(f"{TITLES[measurement]}, {unit}", fontsize=9)
    slow = [entry["text"] for entry in run.slow_links()]
    return Chart(
        title="Links between ranks" + (f" ({run.path.name})" if several else ""),
        explanation="From each rank (row) to each other (column). The darker a cell, the more time the link takes, compared with the fastest "
                    "one. Grey lines divide hosts. Framed links are slow, compared with links of the same class: a whole row and column is a "
                    "rank's own link, a single cell a cable. White cells were not measured.",
        alt=f"Links between {ranks} ranks. " + (f"Slow: {'. '.join(slow)}." if slow else "No link is slow."),
        figure=figure,
        columns=("from rank", "to rank", "class", "latency, µs", "GB/s", "GB/s back", "GB/s both ways"),
        rows=[(link["from"], link["to"], ("in a host" if link["in_host"] else "between hosts") + f", {link['class'] + 1} of {link['classes']}",
               f"{link['latency_us']:.2f}", *(f"{link[key]:.3f}" for key in ("gb_per_s", "back_gb_per_s", "both_ways_gb_per_s")))
              for link in run.links()])


def _draw(figure, axes, values, times, ranks):
    cells = [[times.get((source, target), float("nan")) for target in range(ranks)] for source in range(ranks)]
    most = max(2.0, *times.values()) if len(times) > 1 else 2.0
    image = axes.imshow(cells, cmap="Blues", norm=LogNorm(vmin=0.8, vmax=most * 1.3))
    if ranks <= MOST_RANKS_WITH_NUMBERS:
        for (source, target), value in values.items():
            axes.text(target, source, f"{value:.3g}", ha="center", va="center", fontsize=7,
                      color="white" if times[source, target] > most ** 0.6 else "black")
        axes.set_xticks(range(ranks))
        axes.set_yticks(range(ranks))
    else:
        bar = figure.colorbar(image, ax=axes, shrink=0.8)
        bar.set_label("time, relative to the fastest link")
    axes.grid(visible=False)
    axes.set_xlabel("to rank")
    axes.set_ylabel("from rank")


def _mark(axes, run, measurement):
    hosts = [rank["host"] for rank in run.data["ranks"]]
    if len(set(hosts)) < len(hosts):
        for rank in range(1, len(hosts)):
            if hosts[rank] != hosts[rank - 1]:
                axes.axhline(rank - 0.5, color=SOFT, linewidth=1, marker="")
                axes.axvline(rank - 0.5, color=SOFT, linewidth=1, marker="")
    for source, target in slow_cells(run, measurement):
        axes.add_patch(Rectangle((target - 0.45, source - 0.45), 0.9, 0.9, fill=False, edgecolor=SLOW, linewidth=1.5))
