"""Peak memory of every rank, by use."""

from chart import COLOURS, REFERENCE, Chart, bytes_axis, bytes_text, legend_above, new_figure

USES = ("parameters", "gradients", "optimizer", "activations", "communication", "workspace", "checkpoints")


def charts(results):
    return _charts("Memory", [(f"{name}, rank {rank['rank']}", rank) for run, name in
                              zip(results.trainings, results.run_names()) for rank in run.data["ranks"]])


def busiest_charts(results, names):
    """One bar a run: its busiest rank."""
    return _charts("Memory of the busiest ranks", [
        (f"{name}, rank {rank['rank']}" if run.config["ranks"] > 1 else name, rank) for run, name in zip(results.trainings, names)
        for rank in [max(run.data["ranks"], key=lambda rank: rank["peak_bytes"]["total"])]])


def _charts(title, ranks):
    if not ranks:
        return []
    figure = new_figure(height=1.6 + 0.3 * len(ranks))
    axes = figure.subplots()
    places = range(len(ranks))
    begins = [0] * len(ranks)
    for use, colour in zip(USES, COLOURS):
        peaks = [rank["peak_bytes"].get(use, 0) for _, rank in ranks]
        axes.barh(places, peaks, left=begins, color=colour, label=use)
        begins = [begin + peak for begin, peak in zip(begins, peaks)]
    axes.plot([rank["peak_bytes"]["total"] for _, rank in ranks], places, linestyle="", marker="|", markersize=14,
              markeredgewidth=2, color=REFERENCE["color"], label="peak of all together")
    axes.set_yticks(places, [name for name, _ in ranks])
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    bytes_axis(axes.xaxis, max(begins))
    axes.set_xlabel("peak bytes")
    legend_above(axes, ncols=4)

    rows = [(name, *(f"{rank['peak_bytes'].get(use, 0)}" for use in USES),
             f"{rank['peak_bytes']['total']}") for name, rank in ranks]
    return [Chart(
        title=title,
        explanation="The peak of each use of memory of a rank during the run. Uses peak at different times, so the "
                    "mark, the peak of their total, may lie left of the end of the bar.",
        alt="Peak memory by use: " + "; ".join(
            f"{name} {bytes_text(rank['peak_bytes']['total'])}" for name, rank in ranks) + ".",
        figure=figure,
        columns=("run", *USES, "total"),
        rows=rows)]
