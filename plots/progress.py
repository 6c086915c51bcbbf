"""Loss over time and over steps, also of runs whose workers do not wait for each other."""

from itertools import cycle

from chart import COLOURS, Chart, legend_beside, new_figure


def charts(results):
    """One for each training and kind of time that several runs share."""
    groups = []
    for run, name in zip(results.trainings, results.run_names()):
        group = next((group for group in groups
                      if group[0][0].same_training(run) and group[0][0].config["clock"] == run.config["clock"]), None)
        if group is None:
            groups.append(group := [])
        group.append((run, name))
    return [_chart(group) for group in groups if len(group) > 1]


def curve(run):
    """Seconds, steps and losses. Where workers do not wait for each other, a point is one worker's step: so much of a step of
    all, and its loss the mean of as many of the last ones as there are workers."""
    updates = [update for update in run.data.get("updates", []) if update["server"] == 0 and update["loss"] is not None]
    if not updates:
        seconds, at = 0, []
        for step in run.data["steps"]:
            seconds += step["seconds"]
            at.append(seconds)
        return at, [step + 1 for step in run.steps("step")], run.steps("loss")
    workers = len({update["rank"] for update in updates})
    losses = [update["loss"] for update in updates]
    means = [sum(losses[max(0, i + 1 - workers):i + 1]) / min(i + 1, workers) for i in range(len(losses))]
    return [update["seconds"] for update in updates], [(i + 1) / workers for i in range(len(updates))], means


def _chart(group):
    figure = new_figure(height=7.0)
    over_time, over_steps = figure.subplots(2, 1)
    rows = []
    for (run, name), colour in zip(group, cycle(COLOURS)):
        seconds, steps, losses = curve(run)
        over_time.plot(seconds, losses, label=name, color=colour, marker="")
        over_steps.plot(steps, losses, label=name, color=colour, marker="")
        updates = run.data.get("updates", [])
        lead = max((update["lead"] for update in updates), default=0)
        delay = sum(update["delay"] for update in updates) / len(updates) if updates else 0
        rows.append((name, f"{seconds[-1]:.6g}", f"{steps[-1]:g}", f"{losses[-1]:.4f}", lead, f"{delay:.2f}"))
    unit = group[0][0].config["clock"] == "unit"
    over_time.set_xlabel("units of time" if unit else "seconds" if group[0][0].config["clock"] == "wall" else "seconds of virtual time")
    over_steps.set_xlabel("steps of all workers")
    for axes in (over_time, over_steps):
        axes.set_ylabel("loss (nats)")
        legend_beside(axes)
    return Chart(
        title="Loss over time and over steps",
        explanation="Workers in step wait for the slowest; others go on, with parameters that lack what the slow ones are still "
                    "computing. Over time that pays, over steps it costs. A point of a run that is not in step is one worker's "
                    "step; the line is the mean of the last ones, one for each worker.",
        alt="Loss over time: " + ", ".join(f"{row[0]} ends at {row[3]} after {row[1]}" for row in rows) + ".",
        figure=figure,
        columns=("run", "time", "steps", "last loss", "most steps ahead of the slowest", "updates not seen, on average"),
        rows=rows)
