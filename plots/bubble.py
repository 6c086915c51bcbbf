"""The bubble of every trained pipeline: closed form, simulated, replayed, measured."""

from chart import COLOURS, Chart, legend_above, new_figure

KINDS = {"expected_fraction": "closed form", "simulated_fraction": "simulated", "replayed_fraction": "replayed",
         "fraction": "measured"}


def charts(results):
    runs = [(name, run.data["bubble"]) for run, name in zip(results.trainings, results.run_names()) if "bubble" in run.data]
    if not runs:
        return []
    figure = new_figure(height=1.6 + 0.6 * len(runs))
    axes = figure.subplots()
    for row, (key, label) in enumerate(KINDS.items()):
        places = [place + 0.2 * (row - 1.5) for place in range(len(runs))]
        shares = [100 * bubble.get(key, 0) for _, bubble in runs]
        axes.barh(places, shares, height=0.18, color=COLOURS[row], label=label)
    axes.set_yticks(range(len(runs)), [name for name, _ in runs])
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("bubble (% of all ranks' time)")
    legend_above(axes, ncols=4)
    rows = [(name, *(f"{100 * bubble[key]:.2f}" if key in bubble else "-" for key in KINDS)) for name, bubble in runs]
    return [Chart(
        title="Bubble of pipelines",
        explanation="The closed form assumes equal stages. The simulation uses the mean time of the run's passes of each "
                    "stage; the replay uses each pass's own time, so it adds the unevenness of passes. The rest of the "
                    "measured bubble is waiting for messages, and for cores if ranks share them.",
        alt="Bubble of pipelines: " + "; ".join(f"{row[0]} {row[1]} % by the closed form, {row[2]} % simulated, "
                                                f"{row[3]} % replayed, {row[4]} % measured" for row in rows) + ".",
        figure=figure,
        columns=("run", "closed form %", "simulated %", "replayed %", "measured %"),
        rows=rows)]
