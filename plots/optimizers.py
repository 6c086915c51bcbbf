"""The loss with each optimizer, and the memory that each takes."""

from matplotlib.ticker import MaxNLocator

from chart import COLOURS, REFERENCE, Chart, bytes_axis, bytes_text, colours, legend_above, legend_right, new_figure
from loss import FEW_STEPS
from memory import USES

# Activations and messages are those of the technique: the same with every optimizer.
OF_OPTIMIZERS = ("parameters", "gradients", "optimizer", "workspace")


def charts(results):
    """One chart for each model and text that is trained with several optimizers."""
    groups = []
    for run in results.trainings:
        group = next((group for group in groups if group[0].same_work(run)), None)
        if group is None:
            groups.append(group := [])
        group.append(run)
    return [_chart(group) for group in groups if len({run.optimizer for run in group}) > 1]


def names_of(runs):
    """The optimizer; the technique if there are several, and the file where that is not enough."""
    kinds = {run.name for run in runs}
    names = [run.optimizer if len(kinds) == 1 else f"{run.name}, {run.optimizer}" for run in runs]
    return [name if names.count(name) == 1 else f"{name} ({run.path.stem})" for run, name in zip(runs, names)]


def _chart(runs):
    names = names_of(runs)
    busiest = [max(run.data["ranks"], key=lambda rank: rank["peak_bytes"]["total"])["peak_bytes"] for run in runs]
    figure = new_figure(height=4.6 + 0.3 * len(runs))
    losses, bytes_held = figure.subplots(2, 1, gridspec_kw={"height_ratios": [3, 0.6 + 0.3 * len(runs)]})
    for run, name, colour in zip(runs, names, colours(len(runs))):
        losses.plot(run.steps("step"), run.steps("loss"), label=name, color=colour,
                    marker="." if len(run.steps("step")) <= FEW_STEPS else "")
    losses.axhline(runs[0].data["unigram_entropy"], label="unigram entropy", **REFERENCE)
    losses.set_xlabel("step")
    losses.set_ylabel("loss (nats)")
    losses.xaxis.set_major_locator(MaxNLocator(integer=True))
    legend_right(losses)

    begins = [0] * len(runs)
    for use, colour in zip(OF_OPTIMIZERS, COLOURS):
        peaks = [peak.get(use, 0) for peak in busiest]
        bytes_held.barh(range(len(runs)), peaks, left=begins, color=colour, label=use)
        begins = [begin + peak for begin, peak in zip(begins, peaks)]
    bytes_held.set_yticks(range(len(runs)), names)
    bytes_held.invert_yaxis()
    bytes_held.grid(axis="y", visible=False)
    bytes_axis(bytes_held.xaxis, max(begins))
    bytes_held.set_xlabel("peak bytes of the busiest rank")
    legend_above(bytes_held, ncols=4)

    rows = [(name, f"{run.config['lr']:g}", f"{run.steps('loss')[0]:.4f}", f"{run.steps('loss')[-1]:.4f}",
             *(f"{peak.get(use, 0)}" for use in USES), f"{peak['total']}") for run, name, peak in zip(runs, names, busiest)]
    return Chart(
        title="Optimizers: loss and memory",
        explanation="Mean loss of each step, in nats per token; the dashed line is the unigram entropy. Below: the peak of each use "
                    "of memory that depends on the optimizer. Its states are what differs most; the workspace has the matrices "
                    "that some optimizers need whole.",
        alt="Loss and optimizer states: " + "; ".join(
            f"{row[0]} from {row[2]} to {row[3]} with {bytes_text(peak.get('optimizer', 0))}" for row, peak in zip(rows, busiest)) + ".",
        figure=figure,
        columns=("optimizer", "lr", "first loss", "last loss", *USES, "total"),
        rows=rows)
