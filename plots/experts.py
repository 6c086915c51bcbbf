"""Tokens of each expert over steps, and how many times the mean the busiest have; of a trace, the bytes of their rows."""

import matrix
from chart import INK, Chart, legend_above, line_styles, new_figure

EXCHANGES = ("dispatch", "combine")  # how the labels of experts' rows begin


def charts(results):
    names = results.trace_names() if len(results.traces) > 1 else [""]
    exchanged = [between_ranks(trace, name) for trace, name in zip(results.traces, names)]
    return [*charts_of_runs(runs_with_experts(results)), *(chart for chart in exchanged if chart)]


def charts_of_runs(found):
    """Of [(run, name)]."""
    runs = [(name, run.data["steps"]) for run, name in found]
    return [_over_steps(runs), _of_last_step(runs), _loads_over_steps(runs)] if runs else []


def runs_with_experts(results):
    return [(run, name) for run, name in zip(results.trainings, results.run_names())
            if all("tokens_of_experts" in step for step in run.data["steps"])]


def busiest(tokens):
    """The tokens of the busiest expert of any layer over the mean of its layer."""
    return max(max(layer) * len(layer) / max(sum(layer), 1) for layer in tokens)


def _over_steps(runs):
    figure = new_figure(height=3.4)
    axes = figure.subplots()
    rows = []
    for (name, steps), style in zip(runs, line_styles(len(runs))):
        times = [busiest(step["tokens_of_experts"]) for step in steps]
        axes.plot([step["step"] for step in steps], times, label=name, **{**style, "marker": ""})
        entropy = steps[-1].get("router_entropy")
        rows.append((name, f"{times[0]:.2f}", f"{times[-1]:.2f}", f"{steps[-1]['aux_loss']:.4f}",
                     "" if entropy is None else f"{entropy:.3f}", f"{steps[-1]['loss']:.4f}"))
    axes.set_ylim(bottom=1)
    axes.set_xlabel("step")
    axes.set_ylabel("busiest expert, times the mean")
    legend_above(axes)
    return Chart(
        title="The busiest expert",
        explanation="Of all layers with experts, the tokens of the expert with the most, over the mean of its layer: 1 if all "
                    "have the same. One less is called MaxVio.",
        alt="The busiest expert over the mean: " + "; ".join(f"{row[0]} {row[1]} at first, {row[2]} at the end" for row in rows) + ".",
        figure=figure,
        columns=("run", "first step", "last step", "balancing loss", "entropy of the router, nats", "loss"),
        rows=rows)


def loads(step):
    """The tokens of each expert, over all layers, relative to the mean."""
    tokens = [sum(layer[expert] for layer in step["tokens_of_experts"]) for expert in range(len(step["tokens_of_experts"][0]))]
    return [count * len(tokens) / max(sum(tokens), 1) for count in tokens]


def _loads_over_steps(runs):
    experts = max(len(steps[0]["tokens_of_experts"][0]) for _, steps in runs)
    figure = new_figure(height=1.0 + (0.8 + min(0.22 * experts, 4)) * len(runs))
    most = max(max(loads(step)) for _, steps in runs for step in steps)
    rows = []
    panels = figure.subplots(len(runs), squeeze=False)[:, 0]
    for axes, (name, steps) in zip(panels, runs):
        by_step = [loads(step) for step in steps]
        first, last = steps[0]["step"], steps[-1]["step"]
        image = axes.imshow([list(of_expert) for of_expert in zip(*by_step)], cmap="Blues", vmin=0, vmax=max(most, 1.0), aspect="auto",
                            interpolation="nearest", extent=(first - 0.5, last + 0.5, len(by_step[0]) - 0.5, -0.5))
        axes.set_title(name, loc="left")
        axes.set_ylabel("expert")
        axes.grid(visible=False)
        rows += [(name, expert, f"{by_step[0][expert]:.2f}", f"{by_step[-1][expert]:.2f}") for expert in range(len(by_step[0]))]
    panels[-1].set_xlabel("step")
    figure.colorbar(image, ax=list(panels), shrink=0.8).set_label("times the mean")
    return Chart(
        title="The load of each expert",
        explanation="Its tokens in all layers, relative to the mean: even shades are balanced, a dark row is an expert that all layers prefer.",
        alt="The load of each expert, times the mean: " + "; ".join(
            f"{name}, up to {max(loads(steps[0])):.2f} at first, {max(loads(steps[-1])):.2f} at the end" for name, steps in runs) + ".",
        figure=figure,
        columns=("run", "expert", "first step", "last step"),
        rows=rows)


def _of_last_step(runs):
    layers = max(len(steps[-1]["tokens_of_experts"]) for _, steps in runs)
    figure = new_figure(height=0.9 + (0.7 + 0.32 * layers) * len(runs))
    rows = []
    for axes, (name, steps) in zip(figure.subplots(len(runs), squeeze=False)[:, 0], runs):
        tokens = steps[-1]["tokens_of_experts"]
        most = max(max(layer) for layer in tokens)
        axes.imshow(tokens, cmap="Blues", vmin=0, vmax=max(most * 1.3, 1), aspect="auto")
        for layer, counts in enumerate(tokens):
            for expert, count in enumerate(counts):
                axes.annotate(str(count), (expert, layer), ha="center", va="center", fontsize=8,
                              color="white" if count > 0.7 * most else INK)
            rows.append((name, layer, " ".join(map(str, counts))))
        axes.set_title(name, loc="left")
        axes.set_yticks(range(len(tokens)))
        axes.set_xticks(range(len(tokens[0])))
        axes.set_ylabel("layer")
        axes.grid(visible=False)
    axes.set_xlabel("expert")
    return Chart(
        title="Tokens of each expert in the last step",
        explanation="A row for each layer with experts, in order; a token counts once for each expert that it chose.",
        alt="Tokens of each expert in the last step: " + "; ".join(f"{row[0]}, layer {row[1]}: {row[2]}" for row in rows) + ".",
        figure=figure,
        columns=("run", "layer with experts", "tokens of each expert"),
        rows=rows)


def between_ranks(trace, name=""):
    """The chart of the exchanges in a trace's last step, a panel for each; None without one."""
    exchanges = {}
    for message in matrix.messages(trace) if matrix.is_training(trace) else []:
        if message.label.startswith(EXCHANGES) and message.bytes:
            pair = exchanges.setdefault(message.label, {}).setdefault((message.source, message.target), [0, 0])
            pair[0] += 1
            pair[1] += message.bytes
    if not exchanges:
        return None
    ranks = 1 + max(rank for pairs in exchanges.values() for pair in pairs for rank in pair)
    columns = min(len(exchanges), 4)
    lines = -(-len(exchanges) // columns)
    figure = new_figure(width=2.9 * columns + 0.6, height=3.2 * lines + 0.3)
    rows, busiest_ranks = [], []
    for place, (label, pairs) in enumerate(exchanges.items()):
        axes = figure.add_subplot(lines, columns, place + 1)
        matrix.draw_cells(figure, axes, pairs, ranks)
        axes.set_title(label, fontsize=9)
        rows += [(label, source, target, count, total) for (source, target), (count, total) in sorted(pairs.items())]
        sent = [sum(total for (source, _), (_, total) in pairs.items() if source == rank) for rank in range(ranks)]
        busiest_ranks.append(f"{label} {max(sent)} bytes of rank {sent.index(max(sent))}, {min(sent)} of rank {sent.index(min(sent))}")
    return Chart(
        title="Rows of experts between ranks" + (f": {name}" if name else ""),
        explanation="Bytes of rows that each rank (row) sends to each other (column) in the last step. A column is what the experts of a "
                    "rank are sent; combine is dispatch with rows and columns swapped. A rank's rows for its own experts do not travel.",
        alt="Rows of experts between ranks, most and least that one sends: " + "; ".join(busiest_ranks) + ".",
        figure=figure,
        columns=("exchange", "from rank", "to rank", "messages", "bytes"),
        rows=rows)
