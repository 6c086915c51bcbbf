"""Ways in which replicas sum their gradients: time over the links' bandwidth, and loss over steps and over bytes."""

from chart import SOFT, Chart, bytes_text, legend_right, line_styles, new_figure, sizes_axis, time_text, times_axis

MOST_PANELS = 3
PANELS_OF_TRAINING = (("step", lambda step, training: step + 1), ("bytes sent by a rank for gradients",
                                                                 lambda step, training: (step + 1) * training.sent_bytes))
BEST_SMOOTHED = 20  # steps, at most a tenth of all


def charts(results):
    found = []
    for run in results.benchmarks:
        points = [point for point in run.exchange_points() if point.bytes_per_second]
        if points:
            found.append(_time_chart(run, points))
        trainings = run.exchange_trainings()
        if trainings:
            found.append(_loss_chart(run, trainings))
    return found


def _styles(methods):
    """`none` is the reference: it has no colour."""
    others = [method for method in methods if method != "none"]
    return {**dict(zip(others, line_styles(len(others)))), "none": {"color": SOFT, "marker": "x", "linewidth": 3}}


def _time_chart(run, points):
    panels = {}
    for point in points:
        panels.setdefault((point.ranks, point.latency_seconds), []).append(point)
    panels = dict(list(panels.items())[:MOST_PANELS])
    methods = list(dict.fromkeys(point.method for point in points))
    styles = _styles(methods)
    figure = new_figure(width=3.0 + 3.9 * len(panels), height=4.6)
    all_axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    said = []
    for axes, ((ranks, latency), own) in zip(all_axes, panels.items()):
        for method in methods:
            line = sorted((point for point in own if point.method == method), key=lambda point: point.bytes_per_second)
            axes.plot([point.bytes_per_second / 1e9 for point in line], [1e6 * point.seconds for point in line], label=method, **styles[method])
        for crossing in run.exchange_crossovers():
            if (crossing.ranks, crossing.latency_seconds) != (ranks, latency) or crossing.method not in methods:
                continue
            said.append(f"{ranks} ranks: {crossing.method} is {_crossing_text(crossing)}")
            if crossing.bytes_per_second is not None:
                axes.axvline(crossing.bytes_per_second / 1e9, color=styles[crossing.method]["color"], linewidth=1, linestyle=":")
        speeds = sorted({point.bytes_per_second / 1e9 for point in own})
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xticks(speeds, [f"{speed:g}" for speed in speeds])
        axes.minorticks_off()
        times_axis(axes)
        axes.set_xlabel("bandwidth of a link, GB/s")
        axes.set_title(f"{ranks} ranks, latency {time_text(1e6 * latency)}", loc="left", fontsize=10)
    all_axes[0].set_ylabel("one exchange of all gradients")
    legend_right(all_axes[-1])
    size = bytes_text(points[0].gradient_bytes)
    return Chart(
        title=f"Sums of {size} of gradients: {run.model}",
        explanation="What a processor does to encode, decode and add up, in time of one core, and the time of messages in virtual time; a "
                    "training can hide both behind backward. Dotted lines: below that bandwidth a method is faster than none.",
        alt="; ".join(said) + "." if said else f"Time to sum {size} of gradients over links of different bandwidth.",
        figure=figure,
        columns=("method", "ranks", "link", "sent", "messages", "processor, ms", "links, ms", "both, ms"),
        rows=[(point.method, point.ranks, point.link, bytes_text(point.message_bytes), point.messages, f"{1e3 * point.processor_seconds:.3f}",
               f"{1e3 * point.link_seconds:.3f}", f"{1e3 * point.seconds:.3f}") for own in panels.values() for point in own])


def _crossing_text(crossing):
    if crossing.bytes_per_second is None:
        return f"{'always' if crossing.is_faster else 'never'} faster than none"
    return f"faster than none below {crossing.bytes_per_second / 1e9:.3g} GB/s"


def _smoothed(losses):
    """Each loss as the mean of those around it: of a window that batches' differences do not show in."""
    half = max(1, min(BEST_SMOOTHED, len(losses) // 10)) // 2
    return [sum(part) / len(part) for part in (losses[max(0, i - half):i + half + 1] for i in range(len(losses)))]


def _loss_chart(run, trainings):
    styles = _styles([training.method for training in trainings])
    figure = new_figure(width=10.4, height=4.6)
    all_axes = figure.subplots(1, 2, sharey=True)
    sizes_axis(all_axes[1])
    for training in trainings:
        style = {**styles[training.method], "marker": "", "linewidth": 1.6}
        by_seed = [_smoothed(losses) for losses in training.losses]
        by_step = list(zip(*by_seed))
        middle = [sum(losses) / len(losses) for losses in by_step]
        for axes, (label, value) in zip(all_axes, PANELS_OF_TRAINING):
            places = [value(step, training) for step in range(len(middle))]
            axes.fill_between(places, [min(losses) for losses in by_step], [max(losses) for losses in by_step], color=style["color"], alpha=0.2,
                              linewidth=0)
            axes.plot(places, middle, label=training.method, **style)
            axes.set_xlabel(label)
    all_axes[0].set_ylabel("loss")
    legend_right(all_axes[-1])
    best = min(trainings, key=_mean_loss)
    seeds = len(trainings[0].losses)
    return Chart(
        title=f"Loss with compressed gradients: {run.model}",
        explanation=f"Trainings with the same steps, learning rate and data; bands reach from the least to the largest of {seeds} seeds, and each "
                    "loss is a mean over neighbouring steps. The error is that of the first step's gradients: their distance to a multiple of "
                    "the exact ones.",
        alt="Validation loss, the mean of all seeds: " + ", ".join(f"{training.method} {_mean_loss(training):.4f}" for training in trainings)
            + f". The least is that of {best.method}.",
        figure=figure,
        columns=("method", "ranks", "sent in a step", "error", "validation loss", "least", "largest"),
        rows=[(training.method, training.ranks, bytes_text(training.sent_bytes), f"{training.error:.4f}", f"{_mean_loss(training):.4f}",
               f"{min(training.validation_losses):.4f}", f"{max(training.validation_losses):.4f}") for training in trainings])


def _mean_loss(training):
    return sum(training.validation_losses) / len(training.validation_losses)
