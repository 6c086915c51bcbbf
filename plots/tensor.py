"""Tensor parallelism of a layer over ranks and links: time, memory and traffic, with closed forms and Megatron-LM."""

import math
import textwrap

from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator

from chart import COLOURS, MARKERS, SOFT, Chart, bytes_axis, bytes_text, log2_axis, nested_widths, new_figure, time_text

COMPUTE, EXPOSED = COLOURS[5], COLOURS[4]
# The other colours, for the variants.
VARIANTS = [COLOURS[0], COLOURS[1], COLOURS[2], COLOURS[3], COLOURS[6]]
MEGATRON = {"linestyle": "--", "linewidth": 1, "marker": "o", "markersize": 10, "markerfacecolor": "none", "markeredgewidth": 0.8}
GREY = {"color": SOFT}
LEGEND = 2.5  # inches, right of the panels
# Widths, for each number of ranks, of the bar and of the markers of other variants next to it.
BAR, MARKED = 0.5, 0.38
MOST_LABELS = 24  # more bars leave no room for labels


def charts(results):
    """One chart for each layer and roofline: only points of the same ones can be compared."""
    groups = {}
    for run in results.benchmarks:
        for point in run.tensor_points():
            key = (point.link, point.recompute, point.variant, point.ranks)
            groups.setdefault((run.layer, run.roofline), {})[key] = point
    return [_chart(layer, roofline, list(points.values())) for (layer, roofline), points in groups.items()]


def _values(points, key):
    """The distinct values of `key`, in the order of the file."""
    return list(dict.fromkeys(getattr(point, key) for point in points))


def _of(points, **wanted):
    """The points with the wanted values, by ranks."""
    found = [point for point in points if all(getattr(point, key) == value for key, value in wanted.items())]
    return sorted(found, key=lambda point: point.ranks)


def _grouped(names, signature):
    """Groups names by signature."""
    groups = {}
    for name in names:
        groups.setdefault(signature(name), []).append(name)
    return list(groups.values())


def _alike(points):
    """Groups variants that send and keep the same bytes: their lines would coincide."""
    return _grouped(_values(points, "variant"), lambda variant: frozenset(
        (p.recompute, p.ranks, p.forward_bytes, p.backward_bytes, p.activation_bytes, p.expected_forward_bytes,
         p.expected_backward_bytes, p.expected_activation_bytes, p.megatron_activation_bytes)
        for p in _of(points, variant=variant)))


def _styles(points):
    """A variant has the colour of its line and its own marker."""
    names = _values(points, "variant")
    return {variant: {"color": VARIANTS[i % len(VARIANTS)], "marker": MARKERS[names.index(variant) % len(MARKERS)], "linestyle": ""}
            for i, variants in enumerate(_alike(points)) for variant in variants}


def _chart(layer, roofline, points):
    styles, alike = _styles(points), _alike(points)
    directions = _directions(points)
    columns = max(len(_values(points, "link")), len(_values(points, "recompute")), len(directions))
    bars = len(_values(points, "link")) * len(_values(points, "ranks"))
    width = LEGEND + min(13.0, max(6.5, 3.0 * columns, 0.68 * bars))
    figure = new_figure(width=width, height=12)
    figure.suptitle(textwrap.fill(f"A layer of {layer}; ranks of {roofline}", int(10 * width)), x=0.01, ha="left",
                    fontsize=11, fontweight="bold")
    times, memory, traffic = figure.subfigures(3, 2, width_ratios=[width - LEGEND, LEGEND], height_ratios=[1.15, 1, 1])
    _draw_times(times, points, styles)
    _draw_memory(memory, points, alike, styles)
    _draw_traffic(traffic, directions, points, alike, styles)
    return Chart(
        title=f"Tensor parallelism: a layer of {layer}, on ranks of {roofline}",
        explanation="Above, the time of a layer, forward and backward. Exposed communication grows with the ranks: slowly "
                    "on fast links, and soon to most of the time on slow ones. Bars are the first variant of the file, the "
                    "markers next to them the others. In the middle, the activations of a layer that a rank keeps from "
                    "forward to backward, and those of Megatron-LM, which also keeps dropout's masks, and attention's "
                    "probabilities (without recomputation) or its output (selective); here all layers share that "
                    "output. Below, the bytes that a rank sends. Points are counted, lines are closed forms. Variants that "
                    "send and keep the same share a line; where lines overlap, the first is drawn widest.",
        alt=_findings(points, alike),
        figure=figure,
        columns=("variant", "recompute", "link", "ranks", "forward ms", "backward ms", "compute ms", "exposed ms", "exposed %",
                 "forward bytes", "forward closed form", "backward bytes", "backward closed form", "activation bytes",
                 "activation closed form", "Megatron-LM activation bytes"),
        rows=[(p.variant, p.recompute, p.link, p.ranks, *(f"{1e3 * seconds:.3f}" for seconds in (
            p.forward_seconds, p.backward_seconds, p.compute_seconds, p.exposed_seconds)), f"{100 * p.exposed:.1f}",
            p.forward_bytes, p.expected_forward_bytes, p.backward_bytes, p.expected_backward_bytes, p.activation_bytes,
            p.expected_activation_bytes, f"{p.megatron_activation_bytes:.0f}") for p in points])


def _findings(points, alike):
    first, recompute = points[0].variant, points[0].recompute
    parts = []
    for link in _values(points, "link"):
        if line := _of(points, link=link, variant=first, recompute=recompute):
            parts.append(f"{link}: " + ", ".join(
                f"{time_text(1e6 * p.seconds)} on {p.ranks}, {100 * p.exposed:.0f} % of it exposed"
                for p in dict.fromkeys((line[0], line[-1]))))
    kept = []
    for recompute in _values(points, "recompute"):
        for variants in alike:
            if line := _of(points, recompute=recompute, variant=variants[0]):
                kept.append(f"{', '.join(variants)}, recompute {recompute}: {bytes_text(line[-1].activation_bytes)} on "
                            f"{line[-1].ranks}, Megatron-LM {bytes_text(line[-1].megatron_activation_bytes)}")
    return f"Time of a layer by ranks, {first}: {'; '.join(parts)}. Activations kept: {'; '.join(kept)}."


def _panels(row, title, names, handles):
    """Axes side by side, with their own titles under a common one, and the legend on their right."""
    left, right = row
    room = left.bbox.width / left.figure.dpi / len(names)  # inches
    left.suptitle(title, x=0.01, ha="left", fontsize=12)
    panels = left.subplots(1, len(names), sharey=True, squeeze=False)[0]
    for axes, name in zip(panels, names):
        axes.set_title(textwrap.fill(name, int(13 * room)), loc="left", fontsize=10)
    right.legend(handles=handles, loc="upper left", bbox_to_anchor=(0, 0.9))
    return panels


def _link_title(link, line):
    if len(line) < 2:
        return link
    return f"{link}: {line[-1].ranks} ranks {line[0].seconds / line[-1].seconds:.1f} times as fast as {line[0].ranks}"


def _draw_times(row, points, styles):
    """A panel for each link: bars of the first variant with the first recomputation, markers of the others."""
    first, recompute = points[0].variant, points[0].recompute
    shown = _of(points, recompute=recompute)
    ranks = sorted(set(_values(shown, "ranks")))
    lines = {link: _of(shown, link=link, variant=first) for link in _values(points, "link")}
    others = [variant for variant in _values(points, "variant") if variant != first and _of(shown, variant=variant)]
    handles = [Patch(color=EXPOSED, label="exposed communication,\nand its share of the time"),
               Patch(color=COMPUTE, label="compute")]
    handles += [Line2D([], [], **styles[variant], label=f"{variant}: its time") for variant in others]
    panels = _panels(row, f"Time of a layer, forward and backward: {first}, recompute {recompute}",
                     [_link_title(link, line) for link, line in lines.items()], handles)
    has_room = len(ranks) * len(lines) <= MOST_LABELS
    for axes, (link, line) in zip(panels, lines.items()):
        _draw_bars(axes, ranks, line, has_room)
        for i, variant in enumerate(others):
            marked = _of(shown, link=link, variant=variant)
            offset = BAR / 2 + MARKED * (i + 1) / (len(others) + 0.5)
            axes.plot([ranks.index(point.ranks) + offset for point in marked], [1e3 * point.seconds for point in marked],
                      **styles[variant], markersize=3.5, label=variant)
        axes.set_xticks(range(len(ranks)), ranks)
        room = max(0, 4 - len(ranks)) / 2  # so that few bars are not too wide
        axes.set_xlim(-0.5 - room, len(ranks) - 0.5 + (MARKED / 2 if others else 0) + room)
        axes.grid(axis="x", visible=False)
        axes.set_xlabel("ranks")
    panels[0].set_ylim(0, 1.2e3 * max(point.seconds for point in shown))
    panels[0].set_ylabel("time (ms)")


def _draw_bars(axes, ranks, line, has_room):
    places = [ranks.index(point.ranks) for point in line]
    compute, exposed = ([1e3 * getattr(point, key) for point in line] for key in ("compute_seconds", "exposed_seconds"))
    axes.bar(places, compute, width=BAR, color=COMPUTE, label="compute")
    axes.bar(places, exposed, bottom=compute, width=BAR, color=EXPOSED, label="exposed")
    for place, point in zip(places, line if has_room else []):
        axes.annotate(f"{1e3 * point.seconds:.3g}\n{100 * point.exposed:.0f} %", (place, 1e3 * point.seconds), xytext=(0, 2),
                      textcoords="offset points", ha="center", fontsize=8)


def _draw_lines(axes, points, alike, styles, counted, expected):
    """Closed forms as lines, and the counted values as points on them."""
    lines = {", ".join(variants): (styles[variants[0]], _of(points, variant=variants[0])) for variants in alike}
    curves = {name: sorted({(point.ranks, getattr(point, expected)) for point in line}) for name, (_, line) in lines.items()}
    curves = {name: curve for name, curve in curves.items() if curve}
    for (name, curve), width in zip(curves.items(), nested_widths(list(curves.values()))):
        axes.plot(*zip(*curve), color=lines[name][0]["color"], marker="", linewidth=1.4 * width, label=name)
    dots = {name: sorted({(point.ranks, getattr(point, counted)) for point in lines[name][1]}) for name in curves}
    for (name, places), width in zip(dots.items(), nested_widths(list(dots.values()))):
        axes.plot(*zip(*places), **lines[name][0], markersize=3 + 1.6 * width, label=f"{name}, counted")
    log2_axis(axes, set(_values(points, "ranks")), "ranks")


def _handles(alike, styles):
    handles = [Line2D([], [], **{**styles[variants[0]], "linestyle": "-"}, label=", ".join(variants)) for variants in alike]
    return [*handles, Line2D([], [], **{**GREY, "linestyle": ""}, marker="o", label="filled: counted"),
            Line2D([], [], **GREY, marker="", label="line: closed form")]


def _draw_memory(row, points, alike, styles):
    """A panel for each recomputation."""
    recomputes = _values(points, "recompute")
    handles = [*_handles(alike, styles), Line2D([], [], **{**GREY, **MEGATRON}, label="dashed, ring: Megatron-LM")]
    panels = _panels(row, "Activations of a layer that a rank keeps", [f"recompute {name}" for name in recomputes], handles)
    for axes, recompute in zip(panels, recomputes):
        shown = _of(points, recompute=recompute)
        for variants in alike:
            curve = sorted({(point.ranks, point.megatron_activation_bytes) for point in _of(shown, variant=variants[0])})
            if curve:
                axes.plot(*zip(*curve), color=styles[variants[0]]["color"], **MEGATRON,
                          label=f"{', '.join(variants)}, Megatron-LM")
        _draw_lines(axes, shown, alike, styles, "activation_bytes", "expected_activation_bytes")
    drawn = [max(1, count) for point in points for count in (point.activation_bytes, point.megatron_activation_bytes)]
    panels[0].set_yscale("log", base=2)
    # Rounded to powers of two, so that there are ticks, with room for the rings.
    panels[0].set_ylim(2 ** math.floor(math.log2(min(drawn) / 1.3)), 2 ** math.ceil(math.log2(max(drawn) * 1.3)))
    panels[0].yaxis.set_major_locator(LogLocator(base=2, numticks=12))
    panels[0].yaxis.set_major_formatter(FuncFormatter(lambda count, _: bytes_text(count)))
    panels[0].minorticks_off()
    panels[0].set_ylabel("kept by a rank")


def _directions(points):
    """(title, direction, recomputation) of each panel of traffic. Recomputations that send the same bytes share one."""
    found = []
    for direction in ("forward", "backward"):
        groups = _grouped(_values(points, "recompute"), lambda recompute: frozenset(
            (p.variant, p.ranks, getattr(p, f"{direction}_bytes"), getattr(p, f"expected_{direction}_bytes"))
            for p in _of(points, recompute=recompute)))
        for recomputes in groups:
            note = f" (recompute {', '.join(recomputes)})" if len(groups) > 1 else ""
            found.append((direction + note, direction, recomputes[0]))
    return found


def _draw_traffic(row, directions, points, alike, styles):
    panels = _panels(row, "Bytes that a rank sends for a layer", [title for title, _, _ in directions], _handles(alike, styles))
    most = 1
    for axes, (_, direction, recompute) in zip(panels, directions):
        shown = _of(points, recompute=recompute)
        _draw_lines(axes, shown, alike, styles, f"{direction}_bytes", f"expected_{direction}_bytes")
        most = max(most, *(getattr(point, f"{direction}_bytes") for point in shown))
    panels[0].set_ylim(-0.04 * most, 1.1 * most)
    bytes_axis(panels[0].yaxis, most)
    panels[0].set_ylabel("sent by a rank")
