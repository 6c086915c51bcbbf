"""Loss over steps and over the bytes that a rank has sent, of replicas that take steps alone, next to those that do not."""

from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator

from chart import REFERENCE, Chart, bytes_text, colours, legend_right, new_figure
from results import BadInput

MEAN_OF = 10  # steps, whose batches differ


def bytes_of_a_step(run):
    """What rank 0 sends in a step, on average: what it sent in the last one, which exchanges one of F fragments, F times in H steps."""
    alone, fragments = run.config.get("local_steps"), run.config.get("outer_fragments", 1)
    if alone and len(run.data["steps"]) % alone:
        raise BadInput(f"{run.path}: its last step sends nothing; train a multiple of {alone} steps, its --local-steps")
    last = next((line["measured"] for line in run.data["theory"] if line["quantity"] == "sent_bytes"), 0)
    return last * fragments / alone if alone else last


def smooth(losses):
    """The mean of each loss and of those of the steps before it, of MEAN_OF at most."""
    recent = [losses[max(0, end - MEAN_OF):end] for end in range(1, len(losses) + 1)]
    return [sum(few) / len(few) for few in recent]


def charts(results):
    """One chart for each training that a run with local steps and others share."""
    groups = []
    for run, name in zip(results.trainings, results.run_names()):
        if run.config["ranks"] == 1 or not run.is_in_step:
            continue
        group = next((group for group in groups if group[0][0].same_training(run)), None)
        if group is None:
            groups.append(group := [])
        group.append((run, name))
    return [_chart(group) for group in groups if any(run.config.get("local_steps") for run, _ in group)]


def _chart(group):
    figure = new_figure(height=7.0)
    over_steps, over_bytes = figure.subplots(2, 1)
    rows = []
    for (run, name), colour in zip(group, colours(len(group))):
        losses, of_step = run.steps("loss"), bytes_of_a_step(run)
        over_steps.plot(run.steps("step"), smooth(losses), label=name, color=colour, marker="")
        over_bytes.plot([of_step * (step + 1) for step in run.steps("step")], smooth(losses), color=colour, marker="")
        rows.append((name, run.config.get("local_steps") or "-", f"{of_step:.0f}", f"{of_step * len(losses):.0f}", f"{losses[0]:.4f}",
                     f"{losses[-1]:.4f}"))
    for axes in (over_steps, over_bytes):
        axes.axhline(group[0][0].data["unigram_entropy"], label="unigram entropy", **REFERENCE)
        axes.set_ylabel(f"loss (nats), mean of {MEAN_OF} steps")
    legend_right(over_steps)
    over_steps.set_xlabel("step")
    over_steps.xaxis.set_major_locator(MaxNLocator(integer=True))
    over_bytes.set_xscale("log", base=2)
    over_bytes.xaxis.set_major_locator(LogLocator(base=2, numticks=8))
    over_bytes.xaxis.set_major_formatter(FuncFormatter(lambda count, _: bytes_text(count)))
    over_bytes.set_xlabel("bytes that a rank has sent")
    ends = ", ".join(f"{name} ends at {last} with {sent} bytes a step" for name, _, sent, _, _, last in rows)
    return Chart(
        title="Loss with local steps",
        explanation="The same training with gradients summed in every step, and with replicas that exchange weights once in H steps. Above: "
                    "the loss, the mean over the replicas, each with its own weights. Below: the same losses over the bytes that "
                    "a rank has sent until then, on average: further left is less traffic for the same loss.",
        alt=f"Loss over steps and over bytes sent: {ends}.",
        figure=figure,
        columns=("run", "local steps H", "bytes a rank sends per step", "bytes in all steps", "first loss", "last loss"),
        rows=rows)
