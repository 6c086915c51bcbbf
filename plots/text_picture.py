"""A chart as text, where no window can open: its lines, bars and matrices in character cells, with axes and a key."""

import math
import re

import numpy
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

LETTERS = "*o+x#@%&=~abcdefgh"
SHADES = "░▒▓█"  # of a matrix, from its least value to its largest
MOST_PANELS, ROWS, FEWEST_CELLS = 3, 12, 20
MOST_ROWS, MOST_LETTERS = 40, 12  # of a matrix, and of its cells
# What matplotlib writes for numbers on an axis.
MATH, POWER = re.compile(r"\$\\mathdefault\{(.*)\}\$"), re.compile(r"10\^\{(.*?)\}")
CORNERS = 6  # of a bar at most: its path closes


def text_picture(figure, width):
    """The first panels of a figure, in lines of at most `width` characters. "" if they have no lines, bars or matrices."""
    panels = [text for axes in figure.axes[:MOST_PANELS] if (text := _matrix(axes, width) if axes.images else _panel(axes, width))]
    return "\n".join(panels)


def _panel(axes, width):
    key = {}  # by colour: the letter, and what the legend calls it
    named = _legend(axes)
    ticks = _ticks(axes.yaxis, axes.get_yticks(), axes.get_ylim())
    margin = max([len(text) for _, text in ticks] + [0]) + 1
    cells = width - margin - 2
    if cells < FEWEST_CELLS:
        return ""
    is_categorical = _is_categorical(axes)
    rows = max(1, len(ticks)) if is_categorical else ROWS
    grid = [[" "] * cells for _ in range(rows)]
    for colour, points in _lines(axes):
        _draw_line(axes, grid, _letter(key, colour, named), points)
    for colour, box in _boxes(axes):
        _fill(axes, grid, _letter(key, colour, named), _flat(box) if is_categorical else box)
    if not key:
        return ""
    labels = {rows - 1 - min(rows - 1, int(place * rows)): text for place, text in ticks if 0 <= place <= 1}
    title = axes.get_title() or axes.get_title(loc="left")
    lines = [title[:width]] if title else []
    lines += [f"{labels.get(row, ''):>{margin}} |{''.join(line)}".rstrip() for row, line in enumerate(grid)]
    lines.append(" " * (margin + 1) + "+" + "-" * cells)
    lines.append(_below(_ticks(axes.xaxis, axes.get_xticks(), axes.get_xlim()), margin + 2, width))
    lines += [text for text in (axes.get_xlabel(),) if text]
    lines += _wrapped([f"{letter} {name}" for letter, name in key.values() if name], width)
    return "".join(line.rstrip()[:width] + "\n" for line in lines)


def _matrix(axes, width):
    """Cells with their texts where these fit, else with shades. "" if there are more than a terminal has place for."""
    image = axes.images[0]
    values = numpy.ma.masked_invalid(image.get_array())
    rows, columns = values.shape[:2]
    labels = _labels_of_cells(axes.yaxis, axes.get_yticks())
    margin = max([len(text) for text in labels.values()] + [0]) + 1
    letters = min(MOST_LETTERS, (width - margin - 2) // columns)
    if values.ndim != 2 or values.count() == 0 or rows > MOST_ROWS or letters < 1:
        return ""
    texts = {(round(text.get_position()[1]), round(text.get_position()[0])): text.get_text().split("\n")[0] for text in axes.texts}
    has_texts = texts and max(map(len, texts.values())) < letters
    order = range(rows) if axes.get_ylim()[0] > axes.get_ylim()[1] else reversed(range(rows))
    title = axes.get_title() or axes.get_title(loc="left")
    lines = [title[:width]] if title else []
    for row in order:
        cells = [_cell_text(image.norm, values, row, column, texts if has_texts else {}, letters) for column in range(columns)]
        lines.append(f"{labels.get(row, ''):>{margin}} |{''.join(cells)}".rstrip())
    lines.append(" " * (margin + 1) + "+" + "-" * (letters * columns))
    along = _labels_of_cells(axes.xaxis, axes.get_xticks())
    lines.append(_below([((column + 1e-6) / columns, text) for column, text in along.items()], margin + 2, margin + 3 + letters * columns))
    lines += [text for text in (axes.get_xlabel(),) if text]
    if not has_texts:
        lines.append(f"{SHADES[0]} {values.min():.4g} to {SHADES[-1]} {values.max():.4g}")
    return "".join(line.rstrip()[:width] + "\n" for line in lines)


def _labels_of_cells(axis, places):
    texts = [text.get_text() for text in axis.get_ticklabels()]
    return {round(place): text for place, text in zip(places, texts) if text and abs(place - round(place)) < 1e-9 and place >= 0}


def _cell_text(norm, values, row, column, texts, letters):
    if texts or values[row, column] is numpy.ma.masked:
        return f"{texts.get((row, column), ''):<{letters}}"
    low, value, high = (float(norm(each)) for each in (values.min(), values[row, column], values.max()))
    part = (value - low) / (high - low) if high > low else 1
    shade = SHADES[min(len(SHADES) - 1, int(part * len(SHADES)))]
    return shade * max(1, letters - 1) + (" " if letters > 1 else "")


def _flat(box):
    """A bar in the row of its middle."""
    x1, y1, x2, y2 = box
    return x1, (y1 + y2) / 2, x2, (y1 + y2) / 2


def _is_categorical(axes):
    """Rows with names, such as ranks."""
    return any(text.get_text() and not text.get_text()[0].isdigit() for text in axes.get_yticklabels())


def _legend(axes):
    handles = [(handle, text.get_text()) for one in [axes.get_legend(), *(other.get_legend() for other in axes.figure.axes)] if one
               for handle, text in zip(one.legendHandles if hasattr(one, "legendHandles") else one.legend_handles, one.get_texts())]
    return {_colour(handle): name for handle, name in handles if _colour(handle)}


def _colour(artist):
    try:
        return to_hex(artist.get_color() if hasattr(artist, "get_color") else artist.get_facecolor())
    except (ValueError, TypeError):
        return None


def _letter(key, colour, named):
    if colour not in key:
        key[colour] = (LETTERS[len(key) % len(LETTERS)], named.get(colour, ""))
    return key[colour][0]


def _place(value, limits, scale):
    """0 to 1 along an axis."""
    low, high = limits
    if scale == "log":
        if value <= 0 or low <= 0 or high <= 0:
            return math.nan
        value, low, high = math.log(value), math.log(low), math.log(high)
    return (value - low) / (high - low) if high != low else 0.5


def _cell(axes, grid, x, y):
    """(row, column) of a point; None outside."""
    across, up = _place(x, axes.get_xlim(), axes.get_xscale()), _place(y, axes.get_ylim(), axes.get_yscale())
    if not (-1e-9 <= across <= 1 + 1e-9 and -1e-9 <= up <= 1 + 1e-9):
        return None
    rows, cells = len(grid), len(grid[0])
    return rows - 1 - min(rows - 1, max(0, int(up * rows))), min(cells - 1, max(0, int(across * cells)))


def _ticks(axis, places, limits):
    labels = [MATH.sub(r"\1", POWER.sub(r"1e\1", text.get_text())) for text in axis.get_ticklabels()]
    if len(labels) != len(places) or not any(labels):
        labels = [f"{place:g}" for place in places]
    found = [(_place(place, limits, axis.get_scale()), text) for place, text in zip(places, labels)]
    return [(place, text) for place, text in found if not math.isnan(place) and -1e-9 <= place <= 1 + 1e-9]


def _below(ticks, begin, width):
    line = [" "] * width
    free = begin
    for place, text in sorted(ticks):
        at = min(begin + int(place * (width - begin - 1)), width - len(text))
        if at >= free:
            line[at:at + len(text)] = text
            free = at + len(text) + 1
    return "".join(line)


def _lines(axes):
    for line in axes.lines:
        points = [(float(x), float(y)) for x, y in zip(line.get_xdata(), line.get_ydata()) if isinstance(x, (int, float)) or hasattr(x, "dtype")]
        if line.get_visible() and len(points) > 1 and _colour(line):
            yield _colour(line), points


def _draw_line(axes, grid, letter, points):
    steps = 2 * len(grid[0])
    for (x1, y1), (x2, y2) in zip(points, points[1:]):
        is_log = axes.get_xscale() == "log" and min(x1, x2) > 0, axes.get_yscale() == "log" and min(y1, y2) > 0
        for i in range(steps + 1):
            cell = _cell(axes, grid, _between(x1, x2, i / steps, is_log[0]), _between(y1, y2, i / steps, is_log[1]))
            if cell:
                grid[cell[0]][cell[1]] = letter


def _between(a, b, part, is_log):
    return a * (b / a) ** part if is_log else a + (b - a) * part


def _boxes(axes):
    """(colour, (x1, y1, x2, y2)) of bars."""
    for patch in axes.patches:
        if isinstance(patch, Rectangle) and patch.get_visible() and patch.get_width() and patch.get_height() and patch.get_facecolor()[3] > 0:
            x, y = patch.get_xy()
            yield _colour(patch), (x, y, x + patch.get_width(), y + patch.get_height())
    for collection in axes.collections:
        if isinstance(collection, PolyCollection) and len(collection.get_facecolor()) > 0:
            for path in collection.get_paths():
                if len(path.vertices) > CORNERS:  # an area
                    continue
                (x1, y1), (x2, y2) = path.vertices.min(axis=0), path.vertices.max(axis=0)
                yield to_hex(collection.get_facecolor()[0]), (x1, y1, x2, y2)


def _fill(axes, grid, letter, box):
    x1, y1, x2, y2 = box
    (left, right), (bottom, top) = sorted(axes.get_xlim()), sorted(axes.get_ylim())
    x1, x2, y1, y2 = max(x1, left), min(x2, right), max(y1, bottom), min(y2, top)
    if x1 > x2 or y1 > y2:
        return
    first, last = _cell(axes, grid, x1, y1), _cell(axes, grid, x2, y2)
    if first is None or last is None:
        return
    for row in range(min(first[0], last[0]), max(first[0], last[0]) + 1):
        for column in range(min(first[1], last[1]), max(first[1], last[1]) + 1):
            grid[row][column] = letter


def _wrapped(parts, width):
    lines = [""]
    for part in parts:
        if lines[-1] and len(lines[-1]) + 3 + len(part) > width:
            lines.append("")
        lines[-1] += ("   " if lines[-1] else "") + part
    return [line for line in lines if line]
