"""Bytes that each rank sends in a step, of runs whose ranks take each step together: measured, and the closed form."""

from chart import COLOURS, INK, Chart, bytes_axis, legend_above, new_figure


def charts(results):
    lines = [(name, line) for run, name in zip(results.trainings, results.run_names())
             for line in run.data["theory"]
             if line["quantity"] == "sent_bytes" and run.config["ranks"] > 1 and run.is_in_step]
    if not lines:
        return []
    figure = new_figure(height=1.4 + 0.3 * len(lines))
    axes = figure.subplots()
    places = range(len(lines))
    axes.barh(places, [line["measured"] for _, line in lines], color=COLOURS[5], label="measured")
    axes.plot([line["expected"] for _, line in lines], places, linestyle="", marker="|", markersize=14,
              markeredgewidth=2, color=INK, label="closed form")
    axes.set_yticks(places, [f"{name}, rank {line['rank']}" for name, line in lines])
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    bytes_axis(axes.xaxis, max(line["measured"] for _, line in lines))
    axes.set_xlabel("bytes sent in one step")
    legend_above(axes, ncols=2)

    rows = [(name, line["rank"], line["formula"], f"{line['expected']:.0f}", f"{line['measured']:.0f}",
             f"{line['measured'] - line['expected']:.0f}") for name, line in lines]
    different = sum(line["measured"] != line["expected"] for _, line in lines)
    return [Chart(
        title="Bytes sent",
        explanation="What each rank sent in the last step. The black mark is the closed form. If it differs from the bar "
                    "by a byte, the result is wrong.",
        alt=f"Bytes that {len(lines)} ranks of the runs sent in a step, compared with the closed forms: " +
            ("all are equal." if different == 0 else f"{different} differ."),
        figure=figure,
        columns=("run", "rank", "closed form", "expected bytes", "measured bytes", "deviation"),
        rows=rows)]
