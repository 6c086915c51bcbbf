"""Memory over the length of sequences, and the error of bf16 over the ranks of a ring."""

from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from chart import COLOURS, REFERENCE, Chart, bytes_text, log2_axis, new_figure
from context_lines import alike, bytes_log_axis, draw_line, grouped, legend, ordered, tokens_axis

PLAIN = {**REFERENCE, "marker": "x"}
ACCUMULATION = {"f32": {"color": COLOURS[0], "marker": "o"}, "bf16": {"color": COLOURS[1], "marker": "s"}}


def chart(model, points):
    """A panel for each number of ranks and heads; memory does not depend on the link."""
    points = list({(p.method, p.ranks, p.heads, p.kv_heads, p.length): p for p in points}.values())
    if len({point.length for point in points}) < 2:
        return None
    one_rank = [point for point in points if point.ranks == 1]
    panels = grouped([point for point in points if point.ranks > 1], lambda point: (point.ranks, point.heads, point.kv_heads))
    # The fewest and the most ranks show the rest.
    panels = dict(list(panels.items())[:1] + list(panels.items())[1:][-1:])
    if not panels:
        return None
    drawn = [*one_rank, *(point for own in panels.values() for point in own)]
    lines = alike(drawn, lambda point: (point.ranks, point.heads, point.kv_heads, point.length, point.growing_bytes))
    figure = new_figure(width=3.4 + 4.2 * len(panels), height=8)
    all_axes, messages = figure.subplots(2, len(panels), sharex=True, sharey="row", squeeze=False, height_ratios=[1.3, 1])
    for axes, below, ((ranks, heads, kv_heads), own) in zip(all_axes, messages, panels.items()):
        whole = sorted((point for point in one_rank if (point.heads, point.kv_heads) == (heads, kv_heads)), key=lambda point: point.length)
        axes.plot([point.length for point in whole], [_plain_bytes(point) for point in whole], **PLAIN, label="one rank, plain form")
        for name, methods in lines.items():
            draw_line(axes, ordered([*whole, *own], methods[0], "length"), methods[0], name, lambda point: point.length,
                      lambda point: point.growing_bytes, lambda point: point.expected_growing_bytes)
            draw_line(below, ordered(own, methods[0], "length"), methods[0], name, lambda point: point.length,
                      lambda point: point.peak["communication"], lambda point: point.expected_peak.get("communication"))
        tokens_axis(below, {point.length for point in own})
        axes.set_title(f"{ranks} ranks, {heads} query heads, {kv_heads} key/value heads", loc="left", fontsize=10)
    bytes_log_axis(*all_axes)
    bytes_log_axis(*messages)
    all_axes[0].set_ylabel("activations and messages, at peak")
    messages[0].set_ylabel("messages alone")
    legend(all_axes[-1], lines, Line2D([], [], **PLAIN, label="one rank with all scores\n(the plain form), computed"))
    longest = max(point.length for point in drawn)
    shown = {point.method: point for point in drawn if point.length == longest}
    said = [f"{method} {bytes_text(point.growing_bytes)}" for method, point in shown.items()]
    said += [f"one rank with all scores {bytes_text(_plain_bytes(point))}" for point in shown.values() if point.scores_bytes]
    return Chart(
        title=f"Peak memory over the length of a sequence: {model}",
        explanation="Activations and messages of the rank with the most; crosses are the closed forms. Blockwise attention keeps no "
                    "scores, so memory is linear in the length, and ranks that share a sequence divide it. The dashed line adds the "
                    "scores of all layers, which the plain form of attention keeps: it was not run. Below, the memory for keys, values "
                    "and heads on their way.",
        alt=f"Activations and messages with {longest} tokens: " + "; ".join(said) + ".",
        figure=figure,
        columns=("method", "ranks", "query heads", "key/value heads", "tokens", "activations", "messages", "closed form", "scores"),
        rows=[(point.method, point.ranks, point.heads, point.kv_heads, point.length, point.peak["activations"],
               point.peak["communication"], point.expected_growing_bytes or "-", f"{point.scores_bytes:.0f}" if point.scores_bytes else "-")
              for point in points])


def _plain_bytes(point):
    return point.growing_bytes + (point.scores_bytes or 0)


def error_chart(results):
    """Output and gradients over the ranks of a ring, with sums in f32 and in bf16."""
    errors = [(run.data["context"].get("lockstep.attention", ""), error) for run in results.benchmarks for error in run.context_errors()]
    errors = [error for name, error in errors if name == errors[0][0]]
    if not errors:
        return None
    name = next(run.data["context"].get("lockstep.attention", "") for run in results.benchmarks if run.context_errors())
    figure = new_figure(width=9, height=4.2)
    panels = figure.subplots(1, 2, sharey=True)
    for axes, (field, title) in zip(panels, (("output_error", "output"), ("gradient_error", "gradients"))):
        for accumulation, own in grouped(errors, lambda error: error.accumulation).items():
            own = sorted(own, key=lambda error: error.ranks)
            axes.plot([error.ranks for error in own], [getattr(error, field) for error in own], label=f"sums in {accumulation}",
                      **ACCUMULATION.get(accumulation, {}))
        log2_axis(axes, {error.ranks for error in errors}, "ranks of the ring")
        axes.set_title(title, loc="left")
    panels[0].set_ylim(0, 1.05 * max(max(error.output_error, error.gradient_error) for error in errors))
    panels[0].yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g} %"))
    panels[0].set_ylabel("relative error (root mean square)")
    panels[0].legend(loc="upper left")
    most = max(error.ranks for error in errors)
    last = {error.accumulation: error for error in errors if error.ranks == most}
    return Chart(
        title=f"Error of attention in bf16 over the ranks of a ring: {name}",
        explanation="Each rank attends to the keys of one rank after another, and merges the results. With sums in f32 the error is "
                    "that of rounding the final result to bf16, whatever the number of ranks; rounded to bf16 after every part, it "
                    "grows with the ring. The reference is computed in f64, in one part.",
        alt=f"Relative error on {most} ranks: " + "; ".join(
            f"sums in {accumulation}: output {error.output_error:.2e}, gradients {error.gradient_error:.2e}"
            for accumulation, error in last.items()) + ".",
        figure=figure,
        columns=("sums in", "ranks", "error of the output", "error of the gradients"),
        rows=[(error.accumulation, error.ranks, f"{error.output_error:.3e}", f"{error.gradient_error:.3e}") for error in errors])
