"""Common to the plots of context parallelism: a style for each method, lines that coincide, and groups of points."""

import math

from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator

from chart import COLOURS, INK, SOFT, bytes_text, legend_right, line_styles, log2_axis

METHODS = {"one-rank": INK, "ring-zig-zag": COLOURS[0], "ring-contiguous": COLOURS[1], "ring-striped": COLOURS[5],
           "all-gather": COLOURS[2], "ulysses": COLOURS[3], "ulysses-2-ring": COLOURS[4]}
STYLES = {name: {**style, "color": METHODS[name]} for name, style in zip(METHODS, line_styles(len(METHODS)))}
STYLES["ring-zig-zag"]["linewidth"] = 3.5  # a striped ring's line lies on it
CLOSED_FORM = {"color": SOFT, "linestyle": "", "marker": "+", "markersize": 9, "zorder": 8}


def style_of(method):
    """Mixes with other groups than the known one have shades of its colour."""
    if method in STYLES:
        return STYLES[method]
    inside = int("".join(letter for letter in method if letter.isdigit()) or 0)
    return {"color": "#8c6d31", "marker": ["P", "X", "v", "D"][inside.bit_length() % 4], "linestyle": "--"}


def grouped(points, key):
    """{key: points}, in the order of the points"""
    groups = {}
    for point in points:
        groups.setdefault(key(point), []).append(point)
    return groups


def ordered(points, method, value):
    """The method's points, by the value: a field or a function."""
    own = [point for point in points if point.method == method]
    return sorted(own, key=value if callable(value) else lambda point: getattr(point, value))


def alike(points, signature):
    """{names of methods whose points have equal signatures: these methods}"""
    groups = {}
    for method in dict.fromkeys(point.method for point in points):
        groups.setdefault(frozenset(signature(point) for point in points if point.method == method), []).append(method)
    return {", ".join(methods): methods for methods in groups.values()}


def setting_text(point):
    """(field, text) of all that a panel's title may say."""
    return [("ranks", f"{point.ranks} ranks"), ("heads", f"{point.heads} heads, {point.kv_heads} of k and v"),
            ("length", f"{point.length} tokens"), ("link", point.link)]


def draw_line(axes, line, method, name, x, y, expected):
    """The measured line, and crosses at the closed forms."""
    axes.plot([x(point) for point in line], [y(point) for point in line], label=name, **style_of(method))
    marks = [point for point in line if expected(point) is not None]
    axes.plot([x(point) for point in marks], [expected(point) for point in marks], label=f"{name}: closed form", **CLOSED_FORM)


def tokens_axis(axes, lengths):
    log2_axis(axes, lengths, "tokens of a sequence")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.tick_params(axis="x", labelrotation=30)


def bytes_log_axis(*panels):
    """The axis that these panels share, after all their lines are drawn. It ends at powers of two, so that it has at least two of them
    to read values by."""
    for axes in panels:
        axes.set_yscale("log", base=2)
        axes.yaxis.set_major_locator(LogLocator(base=2, numticks=12))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda count, _: bytes_text(count)))
        axes.minorticks_off()
    low, high = panels[0].get_ylim()
    panels[0].set_ylim(2 ** math.floor(math.log2(low)), 2 ** math.ceil(math.log2(high)))


def legend(axes, lines, *more):
    """To the right: a line for each group of methods."""
    handles = [Line2D([], [], **style_of(methods[0]), label=name.replace(", ", ",\n")) for name, methods in lines.items()]
    closed = [Line2D([], [], **CLOSED_FORM, label="closed form")] * bool(more)
    legend_right(axes, handles=[*handles, *closed, *more])
