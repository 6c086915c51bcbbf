"""The report's sections on collectives and on data parallelism."""

import bandwidth
import matrix
import scaling
import timeline
from chart import SOFT, Chart, bytes_text, colours, new_figure, time_text
from page import Section, joined
from report_overview import exposed_share, shown
from collective_points import by_operation_and_ranks, lines_of
from results import Results

RING = "all_reduce/ring"
MOST_DRAWN_RANKS = 8


def all_reduce_sections(results):
    return [_ring(results), joined("Bandwidth and scaling of collectives", _bandwidth(results), _scaling(results))]


def data_parallel_sections(results):
    return [_overlap(results), _parameter_server(results)]


def ring_steps(trace):
    """[[(chunk, to, bytes)]] by rank: what it sent in each step of the trace's first ring all-reduce; empty without one. A
    chunk's number is its place in the buffer."""
    found = [message for message in matrix.messages(trace) if message.operation == RING]
    if not found or matrix.is_training(trace):
        return []
    size = max(message.operation_bytes for message in found)
    ranks = len(found[0].group)
    rows = []
    for rank in found[0].group:
        sent = sorted((message for message in found if message.source == rank and message.operation_bytes == size),
                      key=lambda message: message.number)[:2 * (ranks - 1)]
        places = sorted({message.address for message in sent})
        rows.append([(places.index(message.address), message.target, message.bytes) for message in sent])
    return rows


def _ring(results):
    rows = next((rows for trace in results.traces if (rows := ring_steps(trace)) and len(rows) <= MOST_DRAWN_RANKS), [])
    if not rows:
        return None
    ranks, steps = len(rows), len(rows[0])
    sent = max(sum(count for _, _, count in row) for row in rows)
    size = sum({chunk: count for chunk, _, count in rows[0]}.values())
    figure = new_figure(width=9, height=0.9 + 0.42 * ranks)
    axes = figure.subplots()
    palette = colours(ranks)
    for rank, row in enumerate(rows):
        for step, (chunk, to, _) in enumerate(row):
            axes.barh(rank, 0.92, left=step + 0.54, height=0.8, color=palette[chunk], alpha=0.45)
            axes.text(step + 1, rank, f"chunk {chunk} to rank {to}", ha="center", va="center", fontsize=8)
    axes.axvline(steps / 2 + 0.5, color=SOFT, linestyle="--")
    axes.set_title("reduce-scatter: the receiver adds", loc="left", fontsize=9)
    axes.set_title("all-gather: the receiver copies", loc="right", fontsize=9)
    axes.set_xlim(0.5, steps + 0.5)
    axes.set_xticks(range(1, steps + 1), [f"step {step}" for step in range(1, steps + 1)])
    axes.set_yticks(range(ranks), [f"rank {rank}" for rank in range(ranks)])
    axes.invert_yaxis()
    axes.grid(visible=False)
    finding = (f"A ring of {ranks} ranks sums {bytes_text(size)} in {steps} steps; each rank sends at most {bytes_text(sent)}, "
               f"{sent / size:.2f} times the data.")
    chart = Chart("How a ring all-reduce works", "", finding, figure, ("rank", "step", "chunk", "to rank", "bytes"),
                  [(rank, step + 1, *sent) for rank, row in enumerate(rows) for step, sent in enumerate(row)])
    return Section(chart.title, finding, "Each box is one message and each colour one chunk: follow a colour from rank to rank. After half of "
                   "the steps each rank holds one fully summed chunk; in the second half these chunks travel around the ring.",
                   [chart], f"lockstep bench all_reduce --ranks {ranks} --algorithm ring -n 1 -w 0 -c 0 --clock unit --trace FILE",
                   "collectives/all_reduce/ring.cc")


def _bandwidth(results):
    runs = [run for run in results.benchmarks if any(point.bytes for point in run.points()) and run.clock == "wall"]
    groups = by_operation_and_ranks(Results(benchmarks=runs))
    if not groups:
        return None
    place, (operation, points) = next(((i, group) for i, group in enumerate(groups) if group[0] == "all_reduce"), (0, groups[0]))
    chart = bandwidth.charts(Results(benchmarks=runs))[place]
    lines = lines_of(points)
    best, name, size = max((point.values["busbw_gb_per_s"], name, point.bytes) for name, line in lines.items() for point in line)
    changes = bandwidth.crossovers(lines)
    finding = f"Highest bus bandwidth between {points[0].ranks} ranks: {best:.2f} GB/s, {name} at {bytes_text(size)}."
    if changes:
        at, _, was, now = changes[-1]
        finding += f" From {bytes_text(round(at))} on, {now} is faster than {was}."
    return Section(f"Bandwidth of {operation}", finding, chart.explanation, [chart],
                   f"lockstep bench {operation} --ranks {points[0].ranks} -b {min(point.bytes for point in points)} "
                   f"-e {max(point.bytes for point in points)} -f 4 --algorithm all --json FILE", f"collectives/{operation}/{operation}.cc")


def _of_operation(results, operation, wanted):
    """The benchmarks in virtual time with points of this operation, if they have several numbers of ranks."""
    runs = [run for run in results.benchmarks if any(
        (point.operation == operation) == wanted and point.best_place for point in run.points()) and run.clock == "unit"]
    return Results(benchmarks=runs)


def _at_most_ranks(points):
    """(ranks, [(time, name)] fastest first) at the largest number of ranks."""
    most = max(point.ranks for point in points)
    return most, sorted((point.values["p50_us"], point.name) for point in points if point.ranks == most)


def _scaling(results):
    subset = _of_operation(results, "ps", False)
    charts = scaling.charts(subset)
    if not charts:
        return None
    points = [point for run in subset.benchmarks for point in run.points() if point.best_place]
    operation = points[0].operation
    most, times = _at_most_ranks([point for point in points if (point.operation, point.bytes) == (operation, points[0].bytes)])
    (least, fastest), (longest, slowest) = times[0], times[-1]
    return Section(f"Scaling of {operation}", f"On {most} ranks, {fastest} needs {time_text(least)} for {bytes_text(points[0].bytes)}; {slowest} "
                   f"needs {time_text(longest)}.", charts[0].explanation, charts[:1],
                   f"lockstep bench {operation} --ranks {most} -b {points[0].bytes} -e {points[0].bytes} -n 1 -w 0 --clock unit "
                   "--link ndr --device none --json FILE", "collectives/transport/virtual/virtual_world.cc")


def traced(results, kind):
    """The trace of the training run of this kind with the most ranks, and that number; None without one."""
    found = []
    for trace in results.traces:
        sent = matrix.messages(trace) if matrix.is_training(trace) else []
        if kind_of(sent) == kind:
            found.append((1 + max(message.source for message in sent), trace))
    return max(found, key=lambda item: item[0], default=None)


def kind_of(sent):
    """The kind of a training run, by the messages of a step."""
    labels = {message.label for message in sent}
    if "push" in labels:
        return "ps"
    if "gradients" in labels and any(label.startswith(("layers", "activations")) for label in labels):
        return "3d"
    if "activations" in labels:
        return "pipeline"
    return "ddp" if labels and labels <= {"gradients", "norm"} else ""


def _overlap(results):
    found = traced(results, "ddp")
    if not found:
        return None
    ranks, trace = found
    chart = timeline.charts(Results(traces=[trace]))[0]
    runs = [(run, name) for run, name in shown(results) if run.config["technique"] == "ddp" and run.config["ranks"] == ranks]
    finding = f"A step of {ranks} data-parallel ranks: gradients leave in buckets while backward still computes."
    if runs:
        run, name = runs[0]
        times = [rank["time"] for rank in run.data["ranks"]]
        hidden = sum(time["hidden_communication"] for time in times)
        total = hidden + sum(time["exposed_communication"] for time in times)
        if total > 0:
            finding = (f"{name}: {100 * hidden / total:.0f} % of the communication is hidden behind backward; the rest costs "
                       f"{100 * exposed_share(run):.1f} % of the time.")
    return Section("Data parallel: overlap", finding, chart.explanation, [chart],
                   f"lockstep train ddp --ranks {ranks} --trace FILE", "parallel/data/ddp.cc")


def _parameter_server(results):
    subset = _of_operation(results, "ps", True)
    charts = scaling.charts(subset)
    if not charts:
        return None
    points = [point for run in subset.benchmarks for point in run.points()]
    most, times = _at_most_ranks([point for point in points if (point.operation, point.bytes) == ("ps", points[0].bytes)])
    taken = ", ".join(f"{name.removeprefix('ps_').replace('_', ' ')} {time_text(time)}" for time, name in times)
    return Section("Parameter server against ring", f"Time of a push and a pull, or of an all-reduce, with {most} workers: {taken}. The "
                   f"slowest takes {times[-1][0] / times[0][0]:.1f} times as long as the fastest.", charts[0].explanation, charts[:1],
                   "lockstep bench ps --workers 2,4,8,16,32,64 --clock unit --link 10gbe --device none -n 1 -w 0 --json FILE",
                   "parallel/parameter_server/server.cc")
