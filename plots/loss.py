"""Loss over steps of every training run, and the difference of each from the one-rank run."""

from matplotlib.ticker import MaxNLocator

from chart import INK, REFERENCE, Chart, colours, legend_right, new_figure

FEW_STEPS = 50  # up to this many steps each get a marker


def reference_of(run, results):
    """The serial run of the same training, or None if there is none or `run` need not equal it."""
    if not run.equals_one_rank:
        return None
    return next((other for other in results.trainings
                 if other.is_reference and other is not run and other.same_training(run)), None)


def relative_differences(run, reference):
    return [abs(a - b) / abs(b) if b else abs(a) for a, b in zip(run.steps("loss"), reference.steps("loss"))]


def charts(results):
    """One chart for each training that the runs share."""
    groups = []
    for run, name in zip(results.trainings, results.run_names()):
        group = next((group for group in groups if group[0][0].same_training(run)), None)
        if group is None:
            groups.append(group := [])
        group.append((run, name))
    return [_chart(group, results, f" of {len(group[0][0].steps('loss'))} steps" if len(groups) > 1 else "")
            for group in groups]


def _chart(group, results, which):
    references = [reference_of(run, results) for run, _ in group]
    differences = [relative_differences(run, reference) if reference else None
                   for (run, _), reference in zip(group, references)]
    worst = max((max(difference) for difference in differences if difference), default=None)
    compared = worst is not None
    figure = new_figure(height=6.0 if compared else 4.2)
    panels = figure.subplots(2 if compared else 1, 1, squeeze=False, sharex=True,
                             gridspec_kw={"height_ratios": [3, 2] if compared else [1]})[:, 0]
    _draw_losses(panels[0], group)
    if compared:
        _draw_differences(panels[1], group, differences)
    panels[-1].set_xlabel("step")
    panels[-1].xaxis.set_major_locator(MaxNLocator(integer=True))

    rows = []
    for (run, name), difference in zip(group, differences):
        losses, validation = run.steps("loss"), run.data["validation"]
        rows.append((name, run.config["dtype"], len(losses), f"{losses[0]:.4f}", f"{losses[-1]:.4f}",
                     f"{validation[-1]['loss']:.4f}" if validation else "-",
                     f"{max(difference):.1e}" if difference else "-"))
    ends = ", ".join(f"{row[0]} from {row[3]} to {row[4]}" for row in rows)
    return Chart(
        title=f"Loss{which}",
        explanation="Mean loss of each step, in nats per token. The dashed line is the unigram entropy: the lowest loss "
                    "without context." +
                    (" Below: the relative difference of each run from the one-rank run. Sums run in a different "
                     "order, so rounding differs, and training slowly amplifies the difference." if compared else ""),
        alt=f"Loss over steps: {ends}." +
            (f" Largest relative difference from one rank: {worst:.1e}." if compared else ""),
        figure=figure,
        columns=("run", "type", "steps", "first loss", "last loss", "validation loss",
                 "largest relative difference from one rank"),
        rows=rows)


def curve_chart(group):
    """The losses alone, for (run, name)s with the same training options."""
    figure = new_figure()
    axes = figure.subplots()
    _draw_losses(axes, group)
    axes.set_xlabel("step")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    rows = [(name, run.config["dtype"], len(run.steps("loss")), f"{run.steps('loss')[0]:.4f}", f"{run.steps('loss')[-1]:.4f}",
             f"{run.data['validation'][-1]['loss']:.4f}" if run.data["validation"] else "-") for run, name in group]
    return Chart(
        title="Loss over steps",
        explanation="Mean loss of each step, in nats per token. All lines coincide with the broad one-rank line, because every "
                    "technique computes the same losses. The dashed line is the unigram entropy: the lowest loss without context.",
        alt="Loss over steps: " + ", ".join(f"{row[0]} from {row[3]} to {row[4]}" for row in rows) + ".",
        figure=figure,
        columns=("run", "type", "steps", "first loss", "last loss", "validation loss"),
        rows=rows)


def _draw_losses(axes, group):
    for (run, name), colour in zip(group, colours(len(group))):
        # The one-rank line is broad, so that equal lines on top of it remain visible with it.
        look = {"linewidth": 5, "alpha": 0.35} if run.is_reference else {}
        axes.plot(run.steps("step"), run.steps("loss"), label=name, color=colour, marker="", **look)
        axes.plot([v["step"] for v in run.data["validation"]], [v["loss"] for v in run.data["validation"]],
                  color=colour, marker="o", linestyle="")
    if any(run.data["validation"] for run, _ in group):
        axes.plot([], [], color=INK, marker="o", linestyle="", label="validation")
    axes.axhline(group[0][0].data["unigram_entropy"], label="unigram entropy", **REFERENCE)
    axes.set_ylabel("loss (nats)")
    legend_right(axes)


def _draw_differences(axes, group, all_differences):
    for (run, name), differences, colour in zip(group, all_differences, colours(len(group))):
        if differences is None:
            continue
        # A logarithmic axis has no zero: equal losses are left out of the line.
        drawn = [difference or float("nan") for difference in differences]
        axes.plot(run.steps("step"), drawn, label=name if any(differences) else f"{name}: equal", color=colour,
                  marker="." if len(drawn) <= FEW_STEPS else "")
    axes.set_yscale("log")
    axes.set_ylabel("|loss - one rank's|\nrelative")
    legend_right(axes)
