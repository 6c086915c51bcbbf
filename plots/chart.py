"""A plot: a figure with the table of its numbers and a text for readers who cannot see it; and the common style."""

import io
import re
from dataclasses import dataclass
from html import escape

import matplotlib

matplotlib.use("Agg")

from cycler import cycler  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.ticker import FuncFormatter, LogFormatter, MultipleLocator  # noqa: E402

# Okabe and Ito's colours, distinguishable with all kinds of colour vision. A page replaces these inks by those of its
# own light or dark style, so nothing else may be drawn in exactly these shades.
INK, SOFT, GRID, PAPER = "#1a1a1a", "#666666", "#dddddd", "#fefefe"
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", INK]
MARKERS = ["o", "s", "^", "D", "v", "P", "X"]
REFERENCE = {"color": SOFT, "linestyle": "--", "linewidth": 1}

# What a rank does has the same colour in schedules, timelines and the explorer.
WORK = {"forward": COLOURS[0], "backward": COLOURS[1], "input gradient": COLOURS[4], "weight gradient": COLOURS[3],
        "communication": COLOURS[2], "unshard": COLOURS[5], "optimizer": "#F0E442", "wait": "#bbbbbb"}

matplotlib.rcParams.update({
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "axes.facecolor": "none",
    "figure.facecolor": "none",   # also the background of a figure's parts
    "savefig.facecolor": "white",
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.prop_cycle": cycler(color=COLOURS) + cycler(marker=MARKERS),
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "font.size": 10,
    "axes.titlesize": 11,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.linewidth": 1.6,
    "lines.markersize": 4,
    "savefig.dpi": 150,
    # Equal results give identical files.
    "svg.hashsalt": "lockstep",
})


def colours(count):
    """A different colour for each of up to 31 runs: the palette, then darker and lighter shades of it."""
    hues = COLOURS[:-1]
    shades = [_mixed(hue, target, share) for target, share in ((0, 0.45), (255, 0.5), (0, 0.7), (255, 0.75)) for hue in hues]
    found = COLOURS + shades
    return [found[i % len(found)] for i in range(count)]


def _mixed(colour, target, share):
    parts = (int(colour[at:at + 2], 16) for at in (1, 3, 5))
    return "#" + "".join(f"{round(part + (target - part) * share):02x}" for part in parts)


def line_styles(count):
    """A style for each line. When the colours are used up, their shades have another stroke."""
    strokes = ["-", "--", ":", "-."]
    return [{"color": colour, "marker": MARKERS[i % len(MARKERS)], "linestyle": strokes[i // len(COLOURS) % len(strokes)]}
            for i, colour in enumerate(colours(count))]


def nested_widths(curves):
    """Widths of lines. Of lines that overlap, the first is widest, so that all remain visible."""
    stretches = [set(zip(curve, curve[1:])) or set(curve) for curve in curves]
    return [1.2 + 1.6 * sum(not own.isdisjoint(other) for other in stretches[i + 1:]) for i, own in enumerate(stretches)]


@dataclass(frozen=True)
class Chart:
    title: str
    explanation: str  # how to read the figure
    alt: str          # the main finding in words
    figure: Figure
    columns: tuple    # of the table of the drawn numbers
    rows: list


def new_figure(width=9.0, height=4.2):
    return Figure(figsize=(width, height), layout="constrained")


def save(figure, path):
    """Writes the figure in the format of the ending of `path`."""
    _lay_out(figure)
    figure.savefig(path, metadata={"Date": None} if path.endswith(".svg") else None)


def _lay_out(figure):
    # Squares get their size from the first layout, and their labels room from the second.
    has_squares = any(axes.get_aspect() != "auto" for axes in figure.axes)
    for _ in range(2 if has_squares else 1):
        figure.get_layout_engine().execute(figure)
    figure.set_layout_engine("none")  # or savefig draws everything once more for a layout


def as_page_element(figure, alt):
    """The figure as an SVG element of a page, in the inks of the page's light or dark style."""
    text = io.StringIO()
    _lay_out(figure)
    figure.savefig(text, format="svg", metadata={"Date": None}, facecolor="none")
    element = text.getvalue()[text.getvalue().index("<svg "):]
    element = re.sub(r' id="(figure|axes|patch|matplotlib|line2d|text|legend|xtick|ytick|PathCollection|PolyCollection|'
                     r'FillBetweenPolyCollection|LineCollection|QuadMesh)[.\w]*"', "", element)
    element = re.sub(r"<metadata>.*?</metadata>\s*", "", element, flags=re.DOTALL)
    for ink, name in ((INK, "ink"), (SOFT, "soft"), (GRID, "grid"), (PAPER, "paper")):
        element = element.replace(ink, f"var(--{name})")
    width = re.match(r'<svg [^>]*?width="([\d.]+)pt"', element)[1]
    element = re.sub(r' (width|height)="[\d.]+pt"', "", element[:element.index(">")], count=2) + element[element.index(">"):]
    return (f'<svg role="img" aria-label="{escape(alt)}" style="width:{float(width) * 4 / 3:.0f}px" ' + element[len("<svg "):])


def bytes_text(count):
    """65536 -> 64 KiB"""
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count >= 1 << power:
            return f"{count / (1 << power):.4g} {unit}"
    return f"{count:.0f} B"


def time_text(microseconds):
    """1234.5 -> 1.23 ms"""
    for scale, unit in ((1e6, "s"), (1e3, "ms")):
        if microseconds >= scale:
            return f"{microseconds / scale:.3g} {unit}"
    return f"{microseconds:.3g} µs"


def sizes_axis(axes):
    """A logarithmic axis of message sizes."""
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda count, _: bytes_text(count)))
    axes.tick_params(axis="x", labelrotation=30)
    axes.set_xlabel("bytes of each rank")


class _TimesBetweenDecades(LogFormatter):
    """Names ticks between powers of ten where there would be fewer than two names otherwise."""

    def __call__(self, value, _=None):
        return time_text(value) if super().__call__(value) else ""


def times_axis(axes):
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: time_text(value)))
    axes.yaxis.set_minor_formatter(_TimesBetweenDecades(labelOnlyBase=False, minor_thresholds=(1.5, 0.5)))


def bytes_axis(axis, most):
    """Ticks at round numbers of KiB or MiB from 0 to `most`."""
    step = 1
    while most / step > 7:
        step *= 2
    axis.set_major_locator(MultipleLocator(step))
    axis.set_major_formatter(FuncFormatter(lambda count, _: bytes_text(count)))


def log2_axis(axes, values, label):
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}"))
    if len(values) <= 10:
        axes.set_xticks(sorted(values))
    axes.minorticks_off()
    axes.set_xlabel(label)


def legend_right(axes, **options):
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), **options)


def legend_above(axes, **options):
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1.01), **options)
