"""Loss over time and over steps, also of asynchronous workers."""

from chart import Chart, colours, legend_right, new_figure


def charts(results):
    """One chart for each training and clock that several runs share."""
    groups = []
    for run, name in zip(results.trainings, results.run_names()):
        group = next((group for group in groups
                      if group[0][0].same_training(run) and group[0][0].config["clock"] == run.config["clock"]), None)
        if group is None:
            groups.append(group := [])
        group.append((run, name))
    return [_chart(group) for group in groups if len(group) > 1]


def curve(run):
    """Seconds, steps and losses. With asynchronous workers, each point is one worker's step: 1 / workers of a step of all. Its
    loss is the mean of the last steps, one for each worker."""
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
    for (run, name), colour in zip(group, colours(len(group))):
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
        legend_right(axes)
    return Chart(
        title="Loss over time and over steps",
        explanation="Synchronous workers wait for the slowest. Asynchronous ones continue with parameters that lack the "
                    "updates of the slow ones: better over time, worse over steps. A point of an asynchronous run is one "
                    "worker's step; the line is the mean of the last steps, one for each worker.",
        alt="Loss over time: " + ", ".join(f"{row[0]} ends at {row[3]} after {row[1]}" for row in rows) + ".",
        figure=figure,
        columns=("run", "time", "steps", "last loss", "most steps ahead of the slowest", "updates not seen, on average"),
        rows=rows)
