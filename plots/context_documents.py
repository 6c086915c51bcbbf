"""Attention's work by rank if documents are packed into sequences, under each layout of their tokens."""

from chart import COLOURS, Chart, new_figure


def charts(results):
    return [_chart(run.data["layouts"], name) for run, name in zip(results.trainings, results.run_names()) if run.data.get("layouts")]


def finding(results):
    """A sentence for each run on documents."""
    sentences = []
    for run, name in zip(results.trainings, results.run_names()):
        found = {record["layout"]: record["imbalance"] for record in run.data.get("layouts", [])}
        if {"zig-zag", "balanced"} <= set(found):
            sentences.append(f"With the documents of {name}, the busiest rank has {found['zig-zag']:.3f} times the mean number of pairs "
                             f"with the zig-zag layout, and {found['balanced']:.3f} times if they lie in a balanced order.")
    return sentences


def _chart(layouts, name):
    figure = new_figure(width=2.4 * len(layouts) + 1.2, height=2.6)
    most = max(max(record["pairs"]) for record in layouts)
    for axes, record in zip(figure.subplots(1, len(layouts), sharey=True, squeeze=False)[0], layouts):
        ranks = range(len(record["pairs"]))
        axes.barh(ranks, record["pairs"], color=[COLOURS[rank % len(COLOURS)] for rank in ranks])
        axes.axvline(sum(record["pairs"]) / len(record["pairs"]), color="grey", linestyle="--", linewidth=1)
        axes.set_xlim(0, 1.05 * most)
        axes.set_yticks(ranks, [f"rank {rank}" for rank in ranks])
        axes.grid(axis="y", visible=False)
        axes.set_title(record["layout"], loc="left")
        axes.set_xlabel(f"pairs; most / mean: {record['imbalance']:.3f}")
    figure.axes[0].invert_yaxis()
    return Chart(
        title=f"Work of attention with the documents of {name}",
        explanation="Pairs of a query and a key of the same document, of one head, in the last step; the dashed line is the mean. For "
                    "ranks that share tokens in a group, the bar shows the pairs of the whole group. Balanced: striped, with the documents of "
                    "each sequence in an order that gives ranks equal work.",
        alt="The busiest rank's pairs over the mean: " + ", ".join(
            f"{record['layout']} {record['imbalance']:.3f}" for record in layouts) + ".",
        figure=figure,
        columns=("layout", "rank", "pairs"),
        rows=[(record["layout"], rank, count) for record in layouts for rank, count in enumerate(record["pairs"])])
