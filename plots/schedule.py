"""Pipeline schedules over time: a row for each rank, a block for each pass of a micro-batch, and below the blocks a strip
for the rank's collectives, if they take time."""

from matplotlib.colors import to_rgb
from matplotlib.patches import Patch
from matplotlib.transforms import ScaledTranslation

from chart import PAPER, SOFT, WORK, Chart, new_figure

# Two shades of any pass are distinguishable from two of any other, with all kinds of colour vision.
PASSES = {"F": ("forward", WORK["forward"]), "B": ("backward", WORK["backward"]),
          "I": ("input gradient", WORK["input gradient"]), "W": ("weight gradient", WORK["weight gradient"])}
COLLECTIVES = {"UNSHARD": ("unshard parameters", WORK["unshard"]), "REDUCE_GRAD": ("reduce gradients", WORK["communication"])}
BLOCKS = (-0.45, 0.9)           # top and height of a rank's blocks
BLOCKS_ABOVE_STRIP = (-0.45, 0.64)
STRIP = (0.22, 0.23)
LIGHTEST = 0.5      # share of white in the shade of a rank's last stage
WIDTH = 13.0        # inches of the figure
DRAWN_WIDTH = 12.2  # inches of the blocks in it
FONT = 6            # points of a micro-batch's number
DIGIT = 0.62        # width of a digit, of its font's size
POINTS = 72         # of an inch


def charts(results):
    """All schedules stacked on one time scale."""
    if not results.schedules:
        return []
    runs = results.schedules
    headlines = _headlines(runs)
    heights = [run.ranks * _row_height(run) for run in runs]
    figure = new_figure(width=WIDTH, height=1.15 + sum(height + 0.34 for height in heights))
    panels = figure.subplots(len(runs), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    end = max(run.makespan for run in runs)
    for run, headline, axes in zip(runs, headlines, panels):
        _draw(axes, run, scale=DRAWN_WIDTH * POINTS / end)
        axes.set_title(headline, loc="left", fontsize=10)
    panels[0].set_xlim(0, end)
    panels[-1].set_xlabel("units of time")
    above_title = panels[0].transAxes + ScaledTranslation(0, 0.25, figure.dpi_scale_trans)
    panels[0].legend(loc="lower left", bbox_to_anchor=(0, 1), bbox_transform=above_title, handles=_handles(runs), ncols=5,
                     borderaxespad=0.2, borderpad=0)
    return [Chart(
        title="Pipeline schedules" if len(runs) > 1 else f"Pipeline schedule {runs[0].name}",
        explanation="The passes of each rank over time: a block is one pass of the micro-batch with its number, blank is "
                    "idle. Later virtual stages of a rank are drawn lighter. A block in two halves is a pair of passes "
                    "that run together. "
                    + ("The strip below shows when the rank's parameters are gathered and its gradients reduced. "
                       if any(_timed_collectives(run) for run in runs) else "") +
                    "The bubble is the share of the makespan in which ranks wait.",
        alt="Pipeline schedules: " + "; ".join(headlines) + ".",
        figure=figure,
        columns=("schedule", "ranks", "micro-batches", "stages", "makespan", "bubble %", "overhead %", "most in flight",
                 "most unfinished"),
        rows=[_row(run) for run in runs])]


def blocks(actions):
    """(action, begin, width) of each pass. Passes that run together share their time: each gets an equal part."""
    together, found = [], []
    for action in actions:
        if action["pass"] not in PASSES:
            continue
        together.append(action)
        if action["with_next"]:
            continue
        for place, one in enumerate(together):
            width = (one["end"] - one["begin"]) / len(together)
            found.append((one, one["begin"] + place * width, width))
        together = []
    return found


def shade(colour, virtual_stage, virtual_stages):
    """The colour, lighter for later virtual stages of a rank."""
    white = LIGHTEST * virtual_stage / (virtual_stages - 1) if virtual_stages > 1 else 0
    return tuple(part + (1 - part) * white for part in to_rgb(colour))


def _timed_collectives(run):
    """(index of the rank, action) of each collective that takes time."""
    return [(place, action) for place, rank in enumerate(run.data["ranks"]) for action in rank["actions"]
            if action["pass"] in COLLECTIVES and action["end"] > action["begin"]]


def _row_height(run):
    """Inches of a rank's row, so that all rows fit on a page."""
    return max(0.06, min(0.22, 2.6 / run.ranks))


def _headlines(runs):
    """One headline for each run. Equal ones, for example with other pass times, are distinguished by their files."""
    lines = [f"{run.name}: p = {run.ranks}, m = {run.micro_batches}, v = {run.virtual_stages}; makespan {run.makespan:g}, "
             f"bubble {100 * run.bubble:.1f} %" for run in runs]
    shapes = [line.split(";")[0] for line in lines]
    return [line if shapes.count(shape) == 1 else f"{line} ({run.path.stem})" for line, shape, run in zip(lines, shapes, runs)]


def _row(run):
    ranks = run.data["ranks"]
    return (run.name, run.ranks, run.micro_batches, run.stages, f"{run.makespan:g}", f"{100 * run.bubble:.2f}",
            f"{100 * run.overhead:.2f}", max(rank["in_flight"] for rank in ranks), max(rank["unfinished"] for rank in ranks))


def _draw(axes, run, scale):
    """`scale`: points of a unit of time."""
    drawn = [(place, blocks(rank["actions"])) for place, rank in enumerate(run.data["ranks"])]
    narrowest = min(width for _, row in drawn for _, _, width in row)
    collectives = _timed_collectives(run)
    top, height = BLOCKS_ABOVE_STRIP if collectives else BLOCKS
    for place, row in drawn:
        stages = sorted({action["stage"] for action, _, _ in row})
        kinds = {}
        for action, begin, width in row:
            kinds.setdefault((action["pass"], stages.index(action["stage"])), []).append((begin, width))
        for (kind, virtual_stage), spans in kinds.items():
            axes.broken_barh(spans, (place + top, height), facecolors=shade(PASSES[kind][1], virtual_stage, len(stages)),
                             edgecolor=PAPER, linewidth=min(0.5, 0.15 * narrowest * scale))
    for place, action in collectives:
        axes.broken_barh([(action["begin"], action["end"] - action["begin"])], (place + STRIP[0], STRIP[1]),
                         facecolors=COLLECTIVES[action["pass"]][1], edgecolor=PAPER, linewidth=0.3)
    if _has_numbers(run, [width * scale for _, row in drawn for _, _, width in row]):
        for place, row in drawn:
            _write_numbers(axes, place + top + height / 2, row, scale)
    axes.set_ylim(run.ranks - 0.5, -0.5)
    step = -(-run.ranks // 8)
    axes.set_yticks(range(0, run.ranks, step), [f"rank {rank}" for rank in range(0, run.ranks, step)], fontsize=8)
    axes.grid(axis="y", visible=False)


def _fits(number, points):
    return DIGIT * FONT * len(str(number)) <= points


def _has_numbers(run, widths):
    """Whether most blocks have room for their number: a few numbers alone would help little."""
    fitting = sum(_fits(run.micro_batches - 1, width) for width in widths)
    return _row_height(run) * POINTS > 1.2 * FONT and 2 * fitting >= len(widths)


def _write_numbers(axes, place, row, scale):
    stages = sorted({action["stage"] for action, _, _ in row})
    for action, begin, width in row:
        if not _fits(action["micro_batch"], width * scale):
            continue
        red, green, blue = shade(PASSES[action["pass"]][1], stages.index(action["stage"]), len(stages))
        dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5
        text = axes.text(begin + width / 2, place, str(action["micro_batch"]), fontsize=FONT, ha="center",
                         va="center_baseline", color="white" if dark else "black")
        text.set_in_layout(False)  # it is inside its block, so the layout need not measure it


def _handles(runs):
    """Legend entries of the passes and collectives that occur, and of the shades."""
    seen = {action["pass"] for run in runs for rank in run.data["ranks"] for action in rank["actions"]}
    handles = [Patch(color=colour, label=name) for kind, (name, colour) in PASSES.items() if kind in seen]
    timed = {action["pass"] for run in runs for _, action in _timed_collectives(run)}
    handles += [Patch(color=colour, label=name) for kind, (name, colour) in COLLECTIVES.items() if kind in timed]
    if any(run.virtual_stages > 1 for run in runs):
        handles.append(Patch(color=shade(SOFT, 1, 2), label="lighter: later stages of the rank"))
    return handles
