"""The search for a plan: where the best step's time goes, the fastest plan of each tp and pp, and time over memory."""

import textwrap

from matplotlib.colors import LogNorm
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

from chart import COLOURS, INK, MARKERS, PAPER, REFERENCE, SOFT, WORK, Chart, colours, legend_right, new_figure
from search_run import GIGABYTE, gigabytes_text, seconds_text

# What a part of the step is, and its kind.
PARTS = {
    "products_at_peak": ("products at the hardware's peak", "computing"),
    "sustained_rate": ("more: the rate that a full wave of tiles sustains", "computing"),
    "tiles_and_launches": ("more: tiles and waves that are not full, launches", "computing"),
    "memory_bound": ("kernels that are bound by memory", "computing"),
    "issue": ("waiting for the host to issue kernels", "computing"),
    "tp": ("exposed exchanges along tp", "exchanges"),
    "cp": ("exposed exchanges along cp", "exchanges"),
    "ep": ("exchanges of the experts' rows", "exchanges"),
    "bubble": ("idle: the pipeline fills and drains", "idle"),
    "imbalance": ("idle: other stages have more to do", "idle"),
    "pp": ("exposed messages between stages", "exchanges"),
    "dp": ("exposed exchanges of gradients and parameters", "exchanges"),
    "tied_embedding": ("sum of the tied embedding's gradients", "exchanges"),
    "optimizer": ("the update", "update"),
    "step_overhead": ("the host between two steps", "update"),
}
KINDS = {"computing": WORK["forward"], "exchanges": WORK["communication"], "idle": WORK["wait"], "update": COLOURS[3]}
CELL_WIDTH, CELL_HEIGHT = 1.25, 0.5  # inches
LIGHT_TEXT = 0.7  # from this place of the colour scale on, white text is easier to read than black
ROWS_OF_COLOUR_BAR = 7
LETTERS_OF_LABEL = 48


def charts(results):
    return [chart for run in results.searches for chart in (waterfall(run), lengths(run), time_over_memory(run))]


def _title(run, text):
    return f"{text}: {run.model} on {run.where}"


def part_name(name):
    return name.replace("_", " ")


def waterfall(run):
    best = run.best
    parts = best.waterfall
    begins = [sum(seconds for _, seconds in parts[:index]) for index in range(len(parts))]
    figure = new_figure(width=9.5, height=1.1 + 0.32 * (len(parts) + 1))
    axes = figure.subplots()
    for place, ((name, seconds), begin) in enumerate(zip(parts, begins)):
        axes.barh(place, seconds, left=begin, height=0.7, color=KINDS[PARTS[name][1]])
        _name_bar(axes, place, max(begin, begin + seconds), f"{seconds:.3g} s, {100 * seconds / best.seconds:.1f} %")
        axes.plot([begin + seconds] * 2, [place - 0.35, place + 1.35], color=SOFT, linewidth=0.7, marker="")
    axes.barh(len(parts), best.seconds, height=0.7, facecolor="none", edgecolor=INK, linewidth=1.2)
    _name_bar(axes, len(parts), best.seconds, seconds_text(best.seconds))
    axes.set_yticks(range(len(parts) + 1), [*(part_name(name) for name, _ in parts), "step"])
    axes.set_ylim(len(parts) + 0.6, -0.6)
    axes.set_xlim(0, 1.22 * best.seconds)
    axes.set_xlabel("seconds of a step")
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    kinds = dict.fromkeys(PARTS[name][1] for name, _ in parts)
    legend_right(axes, handles=[Patch(color=KINDS[kind], label=kind) for kind in kinds])
    rate = best.data["model_tflops_per_gpu"]
    return Chart(
        title=_title(run, "From peak to achieved"),
        explanation="Each bar begins where the one above ends: what a step would take if only the parts down to it existed. The first is what "
                    "the products would take at the hardware's peak. The table of the numbers says what each part is, and the rate down to it: "
                    "of the model's own FLOPs, without recomputation and with attention as if it had no mask, so it may begin elsewhere "
                    "than at the peak.",
        alt=f"A step of {best.name} takes {seconds_text(best.seconds)}: {', '.join(_shares(best, 3))}; the others are smaller. A GPU "
            f"achieves {rate:.1f} TFLOP/s of the model's own FLOPs.",
        figure=figure,
        columns=("part", "what it is", "seconds", "% of the step", "TFLOP/s of a GPU down to here"),
        rows=[*((part_name(name), PARTS[name][0], f"{seconds:.4g}", f"{100 * seconds / best.seconds:.1f}",
                 f"{rate * best.seconds / (begin + seconds):.1f}")
                for (name, seconds), begin in zip(parts, begins)),
              ("step", "", f"{best.seconds:.4g}", "100.0", f"{rate:.1f}")])


def _name_bar(axes, place, x, text):
    axes.annotate(text, (x, place), xytext=(5, 0), textcoords="offset points", va="center", fontsize=9)


def _shares(plan, count):
    """The largest parts in words."""
    parts = sorted(plan.waterfall, key=lambda part: -part[1])[:count]
    return [f"{100 * seconds / plan.seconds:.1f} % {part_name(name)}" for name, seconds in parts]


def lengths(run):
    cells = {(cell["tp"], cell["pp"]): cell for cell in run.by_tp_pp}
    columns, rows = (sorted({place[side] for place in cells}) for side in (0, 1))
    figure = new_figure(width=max(6, CELL_WIDTH * len(columns) + 2), height=CELL_HEIGHT * len(rows) + 1)
    axes = figure.subplots()
    fitting = {place: cell["seconds"] for place, cell in cells.items() if cell["fits"]}
    norm = _draw_times(figure, axes, fitting, columns, rows)
    for (tp, pp), cell in cells.items():
        x, y = columns.index(tp), rows.index(pp)
        if cell["fits"]:
            axes.text(x, y, f"{seconds_text(cell['seconds'])}\n{gigabytes_text(cell['memory'])}", ha="center", va="center", fontsize=8,
                      color="white" if norm(cell["seconds"]) > LIGHT_TEXT else "black")
        else:
            axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=SOFT, alpha=0.16, linewidth=0))
            axes.text(x, y, f"≥ {gigabytes_text(cell['memory'])}", ha="center", va="center", fontsize=8, color=SOFT)
    best = run.best.length("tp"), run.best.length("pp")
    if best in cells:
        axes.add_patch(Rectangle((columns.index(best[0]) - 0.48, rows.index(best[1]) - 0.46), 0.96, 0.92, fill=False, edgecolor="black",
                                 linewidth=2.2))
    for draw, count in ((axes.axvline, len(columns)), (axes.axhline, len(rows))):
        for place in range(1, count):
            draw(place - 0.5, color=PAPER, linewidth=1, marker="")
    axes.set_xticks(range(len(columns)), [f"tp {tp}" for tp in columns])
    axes.set_yticks(range(len(rows)), [f"pp {pp}" for pp in rows])
    axes.set_xlim(-0.5, len(columns) - 0.5)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.grid(visible=False)
    axes.tick_params(length=0)
    near = sorted((seconds, place) for place, seconds in fitting.items() if place != best)
    second = f" The next has tp {near[0][1][0]} and pp {near[0][1][1]}: {seconds_text(near[0][0])}." if near else ""
    return Chart(
        title=_title(run, "The fastest plan of each tp and pp"),
        explanation=f"Each cell is the fastest plan with this tp and pp that fits into {gigabytes_text(run.limit)}: its step, and the memory of "
                    "its fullest GPU. A grey cell has no plan that fits, and names the least memory that any plan needs there. An empty cell "
                    "has no plan. The best is outlined.",
        alt=f"Pairs of tp and pp with a plan that fits: {len(fitting)} of {len(cells)}. The fastest has tp {best[0]} and pp {best[1]}: "
            f"{seconds_text(run.best.seconds)}.{second}",
        figure=figure,
        columns=("tp", "pp", "seconds", "GB", "fits", "plan"),
        rows=[(tp, pp, f"{cell['seconds']:.4g}", f"{cell['memory'] / GIGABYTE:.1f}", "yes" if cell["fits"] else "no", cell["name"])
              for (tp, pp), cell in sorted(cells.items())])


def _draw_times(figure, axes, times, columns, rows):
    """Returns the scale of the colours; None without times."""
    if not times:
        return None
    values = [[times.get((tp, pp), float("nan")) for tp in columns] for pp in rows]
    least, most = min(times.values()), max(times.values())
    norm = LogNorm(least, most if most > least else 2 * least)
    image = axes.imshow(values, cmap="YlOrRd", norm=norm, aspect="auto")
    bar = figure.colorbar(image, ax=axes, pad=0.02, shrink=min(1, ROWS_OF_COLOUR_BAR / len(rows)), anchor=(0, 1))
    bar.ax.yaxis.set_major_locator(FixedLocator([least, (least * most) ** 0.5, most] if most > 1.1 * least else [least]))
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g} s"))
    bar.ax.yaxis.set_minor_formatter(NullFormatter())
    bar.ax.minorticks_off()
    return norm


def time_over_memory(run):
    plans, best = run.plans, run.best
    figure = new_figure(width=9.5, height=4.6)
    axes = figure.subplots()
    axes.axhspan(*best.data["interval"], color=SOFT, alpha=0.12, linewidth=0)
    found = sorted({plan.length("tp") for plan in plans})
    for place, (tp, colour) in enumerate(zip(found, colours(len(found)))):
        own = [plan for plan in plans if plan.length("tp") == tp]
        axes.plot([plan.memory / GIGABYTE for plan in own], [plan.seconds for plan in own], linestyle="", color=colour,
                  marker=MARKERS[place % len(MARKERS)], markersize=5, label=f"tp {tp}")
    frontier = least_time_by_memory([plan for plan in plans if plan.fits] or plans)
    axes.step([plan.memory / GIGABYTE for plan in frontier], [plan.seconds for plan in frontier], where="post", color=INK, linewidth=0.9,
              marker="", zorder=1, label="fastest with at\nmost this memory")
    axes.axvline(run.limit / GIGABYTE, **{**REFERENCE, "marker": ""}, label=f"limit {gigabytes_text(run.limit)}")
    axes.plot([best.memory / GIGABYTE], [best.seconds], linestyle="", marker="o", markersize=12, fillstyle="none", color=INK)
    axes.margins(x=0.06, y=0.12)
    _name_best(axes, run)
    axes.set_xlabel("GB of the fullest GPU")
    axes.set_ylabel("seconds of a step")
    legend_right(axes)
    within = sum(plan.seconds <= best.data["interval"][1] for plan in plans) - 1
    least = frontier[0]
    longer = f"takes {100 * (least.seconds / best.seconds - 1):.1f} % longer" if least.name != best.name else "is the best itself"
    return Chart(
        title=_title(run, "Time over memory"),
        explanation="Each point is a plan that was replayed; they are the best by the closed form. The grey band is the interval of the best "
                    "step: plans within it may be as fast.",
        alt=f"Other plans within the interval of the best, {_interval(best)}: {within} of {len(plans) - 1}. The one with the least memory, "
            f"{gigabytes_text(least.memory)}, {longer}: {least.name}.",
        figure=figure,
        columns=("plan", "seconds", "closed form", "GB", "fits"),
        rows=[(plan.name, f"{plan.seconds:.4g}", f"{plan.data['closed_form_seconds']:.4g}", f"{plan.memory / GIGABYTE:.1f}",
               "yes" if plan.fits else "no") for plan in plans])


def _interval(plan):
    least, most = plan.data["interval"]
    return f"{seconds_text(least)} to {seconds_text(most)}"


def least_time_by_memory(plans):
    """The plans that no other beats in both, the one with the least memory first."""
    found = []
    for plan in sorted(plans, key=lambda plan: (plan.memory, plan.seconds)):
        if not found or plan.seconds < found[-1].seconds:
            found.append(plan)
    return found


def _name_best(axes, run):
    """Below the points, on the side that has room."""
    best = run.best
    least, most = axes.get_xlim()
    is_right = best.memory / GIGABYTE > (least + most) / 2
    text = f"{textwrap.fill(best.name, LETTERS_OF_LABEL, break_on_hyphens=False)}\n{seconds_text(best.seconds)}"
    axes.annotate(text, (best.memory / GIGABYTE, best.seconds), xytext=(-9 if is_right else 9, -9), textcoords="offset points",
                  ha="right" if is_right else "left", va="top", fontsize=9, parse_math=False)
