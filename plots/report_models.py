"""The report's sections on pipelines, tensor, sharded data, context and expert parallelism, and the mesh."""

import pathlib
from dataclasses import replace
from html import escape

import context
import context_documents
import dispatch
import exchange
import factorings
import local_steps
import matrix
import optimizers
import pipeline
import prefetch
import ring
import schedule
import sharded
import tensor
import timeline
from chart import COLOURS, INK, Chart, bytes_axis, bytes_text, colours, new_figure, time_text
from page import Section
from report_collectives import traced
from report_overview import shown
from results import Results

EXPLORER = pathlib.Path(__file__).with_name("explorer.html")


def pipeline_sections(results):
    bubbles, step = _bubbles(results), _real_timeline(results)
    if bubbles and step:
        bubbles, step = replace(bubbles, finding=f"{bubbles.finding} {step.finding}", reading=f"{bubbles.reading} {step.reading}",
                                charts=[*bubbles.charts, *step.charts]), None
    return [_schedules(results), bubbles, step]


def _schedules(results):
    if not results.schedules:
        return None
    charts = schedule.charts(results)
    bubbles = [(run.bubble, run.name, run) for run in results.schedules]
    least, name, run = min(bubbles, key=lambda item: item[0])
    most, worst, _ = max(bubbles, key=lambda item: item[0])
    finding = f"{name}: {100 * least:.1f} % of the time of {run.ranks} ranks is idle"
    finding += f", with {worst} {100 * most:.1f} %." if len(bubbles) > 1 else "."
    page = escape(EXPLORER.read_text(encoding="utf-8"), quote=True)
    explorer = (f'<details><summary>Explorer: change ranks, micro-batches and pass times</summary>\n'
                f'<iframe title="Explorer of pipeline schedules" loading="lazy" srcdoc="{page}"></iframe></details>')
    return Section("Pipeline schedules", finding, charts[0].explanation, charts,
                   f"lockstep schedule all -p {run.ranks} -m {run.micro_batches}", "parallel/pipeline/schedules", body=explorer)


def _comparable(runs):
    """The trained pipelines of the number of ranks that most of them have."""
    by_ranks = {}
    for run, name in runs:
        if "bubble" in run.data and run.config["technique"] == "pipeline":
            by_ranks.setdefault(run.config["ranks"], []).append((run, name))
    return max(by_ranks.values(), key=len, default=[])


def _bubbles(results):
    runs = _comparable(shown(results))
    if not runs:
        charts = pipeline.charts(results)[:2]
        return Section("Pipeline: bubble and memory", charts[0].alt, charts[0].explanation, charts, "lockstep bench pipeline --json FILE",
                       "parallel/pipeline/simulator") if charts else None
    figure = new_figure(width=11, height=1.5 + 0.42 * len(runs))
    bubbles, memories = figure.subplots(1, 2, sharey=True)
    rows = []
    for place, (run, name) in enumerate(runs):
        bubble = run.data["bubble"]
        peaks = [rank["peak_bytes"]["activations"] for rank in run.data["ranks"]]
        bubbles.barh(place, 100 * bubble["fraction"], color=COLOURS[5])
        if "expected_fraction" in bubble:
            bubbles.plot(100 * bubble["expected_fraction"], place, linestyle="", marker="|", markersize=16, markeredgewidth=2, color=INK)
        memories.barh(place, max(peaks), color=COLOURS[4])
        rows.append((name, f"{100 * bubble['fraction']:.2f}",
                     f"{100 * bubble['expected_fraction']:.2f}" if "expected_fraction" in bubble else "-", max(peaks)))
    bubbles.set_yticks(range(len(runs)), [name for _, name in runs])
    bubbles.invert_yaxis()
    bubbles.set_xlabel("bubble, % of all ranks' time; mark: closed form")
    bytes_axis(memories.xaxis, max(row[3] for row in rows))
    memories.set_xlabel("peak activations of the busiest rank")
    for axes in (bubbles, memories):
        axes.grid(axis="y", visible=False)
    least, most = min(rows, key=lambda row: float(row[1])), max(rows, key=lambda row: row[3])
    form = "no closed form" if least[2] == "-" else f"{least[2]} % by its closed form"
    finding = f"Smallest bubble: {least[0]}, {least[1]} % measured, {form}. Most activations: {most[0]}, {bytes_text(most[3])}."
    chart = Chart("Bubble and memory of trained pipelines", "", finding, figure,
                  ("run", "bubble measured %", "closed form %", "peak activation bytes"), rows)
    return Section("Pipeline: bubble and memory", finding, "The closed form assumes equal stages; in practice the first stage also runs "
                   "the embedding and the last also computes the loss, so the other stages wait.", [chart],
                   "lockstep train pipeline --ranks 4 --micro-batches 12 --schedule NAME --json FILE", "parallel/pipeline/schedules")


def _real_timeline(results):
    found = traced(results, "pipeline")
    if not found:
        return None
    ranks, trace = found
    chart = timeline.charts(Results(traces=[trace]))[0]
    begin, end = trace.steps()[trace.typical_step()]
    return Section("Pipeline: a real step", f"A step of {ranks} stages takes {time_text(end - begin)}.", chart.explanation, [chart],
                   f"lockstep train pipeline --ranks {ranks} --micro-batches 12 --trace FILE", "parallel/pipeline/execution/executor.cc")


def tensor_section(results):
    charts = tensor.charts(results)
    if not charts:
        return None
    points = [point for run in results.benchmarks for point in run.tensor_points()]
    first = [point for point in points if (point.variant, point.recompute) == (points[0].variant, points[0].recompute)]
    parts = []
    for link in dict.fromkeys(point.link for point in first):
        line = sorted((point for point in first if point.link == link), key=lambda point: point.ranks)
        parts.append(f"On {link}, {line[-1].ranks} ranks are {line[0].seconds / line[-1].seconds:.1f} times as fast as {line[0].ranks}, "
                     f"and {100 * line[-1].exposed:.0f} % of their time is exposed communication.")
    return Section("Tensor and sequence parallelism", " ".join(parts), charts[0].explanation, charts[:1],
                   "lockstep bench tp --ranks 1,2,4,8,16 --variant tp,sp --link nvlink,dgx --json FILE", "parallel/tensor/layers.cc")


def sharded_section(results):
    charts = [*sharded.charts(results), *prefetch.charts(results)]
    if not charts:
        return None
    findings = [chart.alt for chart in charts if chart.title.startswith(("States", "FSDP"))] or [charts[0].alt]
    return Section("Sharded data parallelism", " ".join(findings), " ".join(chart.explanation for chart in charts), charts,
                   "lockstep bench sharded --simulate --ranks 4 --json FILE", "parallel/sharded/sharding.h")


def context_section(results):
    charts = [*context.charts(results), *ring.charts(results)]
    if not charts:
        return None
    limits = [limit for run in results.benchmarks for limit in run.context_limits()]
    sentences = []
    if limits:
        first = limits[0].ranks
        longest = max((limit for limit in limits if limit.ranks == first), key=lambda limit: limit.length)
        sentences.append(f"If only attention takes time, a step with contiguous tokens on {first} ranks takes {longest.measured:.4f} times "
                         f"as long as with zig-zag ones; the limit (2c-1)/c is {longest.limit:.4f}.")
    found = {(c.heads, c.kv_heads): c for run in results.benchmarks for c in run.context_crossovers()
             if (c.quantity, c.over) == ("bytes", "ranks")}
    sentences += [f"With {heads} query heads and {kv_heads} key/value heads, Ulysses sends {'less' if c.ulysses_is_less_above else 'more'} "
                  f"than a ring on more than {c.at:.1f} ranks." for (heads, kv_heads), c in found.items()]
    sentences += context_documents.finding(results)
    first_ones = ("Work of attention", "Who computes", "Bytes to share", "Attention of one layer")
    shown_here = [chart for chart in charts if chart.title.startswith(first_ones)] or charts
    return Section("Context parallelism", " ".join(sentences) or charts[0].alt, " ".join(chart.explanation for chart in shown_here),
                   shown_here, "lockstep bench cp --simulate --ranks 4 --lengths 65536 --json FILE", "parallel/plan/context_split.h")


def dispatch_section(results):
    charts = dispatch.charts(results)
    if not charts:
        return None
    return Section("Rows to experts", " ".join(chart.alt for chart in charts), " ".join(chart.explanation for chart in charts), charts,
                   "lockstep bench moe --ranks 16 --json FILE", "parallel/expert/dispatcher.h")


def _section_of(charts, title, command, source):
    """None without charts."""
    if not charts:
        return None
    return Section(title, " ".join(chart.alt for chart in charts), " ".join(chart.explanation for chart in charts), charts, command, source)


def optimizers_section(results):
    return _section_of(optimizers.charts(results), "Optimizers", "lockstep train TECHNIQUE --optimizer NAME --json FILE",
                       "models/optimizers/optimizer.h")


def local_steps_section(results):
    return _section_of(local_steps.charts(results), "Local steps", "lockstep train ddp --local-steps STEPS --json FILE",
                       "parallel/data/local_steps.h")


def exchange_section(results):
    return _section_of(exchange.charts(results), "Compressed gradients", "lockstep bench exchange --train --json FILE",
                       "parallel/exchange/compressed_sum.h")


def factorings_section(results):
    charts = factorings.charts(results)
    if not charts:
        return None
    reasons = [f"{_arranged(entry)}: {entry['reason']}." for run in results.benchmarks if list(run.factorings())
               for entry in run.data.get("not_chosen", [])[:2]]
    return Section("Arrangements of ranks", " ".join([*(chart.alt for chart in charts), *reasons]), charts[0].explanation, charts,
                   "lockstep bench 3d --ranks 16 --json FILE", "bench/techniques/factorings.cc")


def _arranged(entry):
    return ", ".join(f"{axis} {entry[axis]}" for axis in ("tp", "cp", "pp", "dp"))


def mesh_of(config):
    """[(axis, length)] of a run, the axis of neighbouring ranks first."""
    return [(axis, config.get(axis, 1)) for axis in config.get("mesh_order", "tp-cp-dp-pp").split("-")]


def place_of(rank, mesh):
    """{axis: the rank's place along it}"""
    places = {}
    for axis, length in mesh:
        rank, places[axis] = divmod(rank, length)
    return places


def traffic_by_axis(sent, mesh):
    """{(axis, rank): bytes} that each rank sends along each axis; along several axes at once: "several"."""
    found = {}
    for message in sent:
        source, target = place_of(message.source, mesh), place_of(message.target, mesh)
        differing = [axis for axis, _ in mesh if source[axis] != target[axis]]
        key = differing[0] if len(differing) == 1 else "several", message.source
        found[key] = found.get(key, 0) + message.bytes
    return found


def mesh_section(results):
    found = traced(results, "3d")
    runs = [(run, name) for run, name in shown(results) if run.config["technique"] == "3d"]
    if not found or not runs or runs[0][0].config["ranks"] != found[0]:
        return None
    (ranks, trace), (run, name) = found, runs[0]
    mesh = mesh_of(run.config)
    traffic = traffic_by_axis(matrix.messages(trace), mesh)
    axes_used = [axis for axis, length in mesh if length > 1]
    most = {axis: max((count for (key, _), count in traffic.items() if key == axis), default=0) for axis in axes_used}
    palette = dict(zip([*axes_used, "several"], colours(len(axes_used) + 1)))
    figure = new_figure(width=11, height=3.4)
    drawing, bars = figure.subplots(1, 2, width_ratios=[1.1, 1])
    _draw_mesh(drawing, ranks, mesh, axes_used, palette)
    _draw_traffic(bars, ranks, traffic, palette)
    finding = f"{name}: the busiest rank sends " + ", ".join(f"{bytes_text(most[axis])} along {axis}" for axis in axes_used) + " in a step."
    chart = Chart("The mesh and its traffic", "", finding, figure, ("axis", "rank", "bytes of a step"),
                  [(axis, rank, count) for (axis, rank), count in sorted(traffic.items())])
    lengths = " ".join(f"--{axis} {length}" for axis, length in mesh if axis in ("tp", "pp") and length > 1)
    return Section("3D parallelism", finding, "Left, the ranks; a line joins ranks that differ along one axis only. Right, what each rank "
                   "sends along each axis in a step. The axis with the most traffic belongs on the fastest links.", [chart],
                   f"lockstep train 3d --ranks {ranks} {lengths} --trace FILE", "parallel/plan/mesh.cc")


def _draw_mesh(axes, ranks, mesh, axes_used, palette):
    steps = dict(zip(axes_used, ((0, 1), (0.5, 0.42), (1.6, 0), (0, 3))))
    lengths = dict(mesh)
    spread = {axis: (dx, dy) for axis, (dx, dy) in steps.items()}
    spots = {}
    for rank in range(ranks):
        places = place_of(rank, mesh)
        spots[rank] = tuple(sum(places[axis] * spread[axis][side] for axis in axes_used) for side in (0, 1))
    for axis in axes_used:
        for rank in range(ranks):
            places = place_of(rank, mesh)
            if places[axis] + 1 >= lengths[axis]:
                continue
            stride = 1
            for other, length in mesh:
                if other == axis:
                    break
                stride *= length
            ends = spots[rank], spots[rank + stride]
            axes.plot(*zip(*ends), color=palette[axis], marker="", linewidth=2.5, label=axis if places == place_of(0, mesh) else None)
    for rank, (x, y) in spots.items():
        axes.text(x, y, str(rank), ha="center", va="center", fontsize=9, color="black",
                  bbox={"boxstyle": "circle,pad=0.35", "facecolor": "#d8e6f2", "edgecolor": INK})
    axes.set_axis_off()
    axes.margins(0.12)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=len(axes_used))


def _draw_traffic(axes, ranks, traffic, palette):
    begins = [0] * ranks
    for axis, colour in palette.items():
        counts = [traffic.get((axis, rank), 0) for rank in range(ranks)]
        if any(counts):
            axes.barh(range(ranks), counts, left=begins, color=colour, label=axis if axis != "several" else "several axes")
        begins = [begin + count for begin, count in zip(begins, counts)]
    axes.set_yticks(range(ranks), [f"rank {rank}" for rank in range(ranks)])
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    bytes_axis(axes.xaxis, max(begins))
    axes.set_xlabel("bytes sent in a step")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=4)
