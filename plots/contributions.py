"""Which ranks' data each rank holds in a collective, message by message."""

from matplotlib.colors import ListedColormap
from matplotlib.patches import Patch, Rectangle

from chart import GRID, INK, Chart, colours, new_figure

WRONG = "#b00020"
MOST_VECTOR_CELLS = 20000  # more are drawn as an image
WIDEST = 12.0              # inches of all ranks' blocks
LARGEST = 0.2              # inches of a cell
LEGEND_ENTRY = 1.4         # inches


def charts(results):
    return [chart_of(run) for run in results.contributions]


def moments(run):
    """How many records the longest list of a rank has."""
    return max(len(held) for held in run.held)


def chart_of(run):
    ranks, elements = run.ranks, run.elements
    columns, rows = ranks * (elements + 1) - 1, moments(run) * (ranks + 1) - 1
    cell = min(LARGEST, WIDEST / columns)
    figure = new_figure(width=cell * columns + 1.6, height=cell * rows + 1.2)
    axes = figure.add_subplot()
    _draw(axes, run, columns, rows)
    _label(axes, run, cell)
    return Chart(
        title=f"Whose data ranks hold in {run.name}",
        explanation="Each block shows one rank (column) at the start, or after one of the messages it received (row). In a block, columns are "
                    "buffer elements and rows are source ranks: coloured if that rank's data are in the element, numbered if they are in it more "
                    "than once. The frame marks what the message wrote. In a result, a cross marks data that are missing.",
        alt=f"Contributions to {run.name}: {verdict(run)}.",
        figure=figure,
        columns=("rank", "after message", "from rank", "elements written", "elements that hold all ranks' data once"),
        rows=[(rank, number, held.get("from", ""), held["count"], sum(all(times == 1 for times in element) for element in held["times"]))
              for rank, records in enumerate(run.held) for number, held in enumerate(records)])


def verdict(run):
    """What is wrong with the results; otherwise how many messages they took."""
    if not run.wrong:
        most = max(sum("from" in held for held in records) for records in run.held)
        return f"correct after {most} messages to each rank" if most else "correct, without a message"
    wrong = {}
    for one in run.wrong:
        what = "lacks" if one["times"] < one["wanted"] else f"holds {one['times']} times"
        wrong.setdefault((one["rank"], what, one["source"]), []).append(one["element"])
    parts = [f"rank {rank} {what} the data of rank {source} in element {', '.join(map(str, elements))}"
             for (rank, what, source), elements in list(wrong.items())[:4]]
    return "wrong: " + "; ".join(parts) + ("; and more" if len(wrong) > 4 else "")


def _draw(axes, run, columns, rows):
    none, blank = 0, float("nan")
    cells = [[blank] * columns for _ in range(rows)]
    for rank, records in enumerate(run.held):
        for number, held in enumerate(records):
            left, top = rank * (run.elements + 1), number * (run.ranks + 1)
            for element, times in enumerate(held["times"]):
                for source, count in enumerate(times):
                    cells[top + source][left + element] = none if count == 0 else source + 1
                    if count > 1:
                        _mark(axes, left + element, top + source, str(count))
            if held["count"]:
                axes.add_patch(Rectangle((left + held["first"], top), held["count"], run.ranks, fill=False, edgecolor=INK, linewidth=1.2, zorder=3))
    for one in run.wrong:
        if one["times"] < one["wanted"]:
            top = (len(run.held[one["rank"]]) - 1) * (run.ranks + 1)
            _mark(axes, one["rank"] * (run.elements + 1) + one["element"], top + one["source"], "×")
    colour_of = ListedColormap([GRID, *colours(run.ranks)])
    axes.pcolormesh(cells, cmap=colour_of, vmin=0, vmax=run.ranks, edgecolors="white", linewidth=0.4,
                    rasterized=columns * rows > MOST_VECTOR_CELLS)
    axes.set_xlim(0, columns)
    axes.set_ylim(rows, 0)


def _mark(axes, x, y, text):
    axes.add_patch(Rectangle((x, y), 1, 1, fill=False, edgecolor=WRONG, linewidth=1.4, zorder=4))
    axes.text(x + 0.5, y + 0.52, text, ha="center", va="center", fontsize=8, fontweight="bold", color=WRONG if text == "×" else "white", zorder=5)


def _label(axes, run, cell):
    axes.grid(visible=False)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    axes.tick_params(length=0)
    axes.xaxis.set_ticks_position("top")
    axes.set_xticks([rank * (run.elements + 1) + run.elements / 2 for rank in range(run.ranks)],
                    [f"rank {rank}" if cell * run.elements > 0.5 else rank for rank in range(run.ranks)])
    axes.set_yticks([number * (run.ranks + 1) + run.ranks / 2 for number in range(moments(run))],
                    ["beginning", *(f"message {number}" for number in range(1, moments(run)))])
    handles = [Patch(color=colour, label=f"of rank {rank}") for rank, colour in enumerate(colours(run.ranks))]
    axes.legend(handles=[*handles, Patch(color=GRID, label="missing")], loc="upper center", bbox_to_anchor=(0.5, 0),
                ncols=max(2, int(axes.figure.get_figwidth() / LEGEND_ENTRY)))
