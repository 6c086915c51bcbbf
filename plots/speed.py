"""Tokens per second of every training run."""

from chart import COLOURS, Chart, new_figure
from loss import reference_of


def charts(results):
    if not results.trainings:
        return []
    names = results.run_names()
    figure = new_figure(height=1.2 + 0.4 * len(names))
    axes = figure.subplots()
    rows = []
    for place, (run, name) in enumerate(zip(results.trainings, names)):
        speed, reference = run.tokens_per_second(), reference_of(run, results)
        ratio = f"{speed / reference.tokens_per_second():.2f}" if reference else "-"
        cores = run.config["ranks"] * run.config["threads"]
        rows.append((name, run.config["ranks"], run.config["threads"], cores, f"{speed:.0f}", ratio))
        axes.barh(place, speed, color=COLOURS[0])
        axes.annotate(f"{speed:,.0f}", (speed, place), xytext=(4, 0), textcoords="offset points", va="center")
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.margins(x=0.15)
    axes.set_xlabel("tokens per second")
    return [Chart(
        title="Speed",
        explanation="Tokens of the median step, per second. A run computes with ranks times threads per rank; if there "
                    "are more threads than cores, they share the cores.",
        alt="Tokens per second: " + ", ".join(f"{row[0]} {row[4]}" for row in rows) + ".",
        figure=figure,
        columns=("run", "ranks", "threads a rank", "threads in all", "tokens per second", "times one rank's"),
        rows=rows)]
