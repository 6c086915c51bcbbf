"""What each rank of a burn-in computes and copies in a second, with the hosts that are slow or wrong."""

from matplotlib.patches import Patch

from chart import COLOURS, Chart, legend_above, new_figure

MOST_RANKS_WITH_NAMES = 40
PANELS = (("product", "matrix products, GFLOP/s"), ("copy", "copies, GB/s"))
OF_VERDICT = {"pass": COLOURS[0], "degraded": COLOURS[4], "fail": COLOURS[1]}


def charts(results):
    return [chart for run in results.benchmarks for chart in charts_of(run, results)]


def charts_of(run, results):
    several = sum(bool(other.burn_in_rates()) for other in results.benchmarks) > 1
    return [_chart(run, several)] if run.burn_in_rates() else []


def _chart(run, several):
    rates, hosts = run.burn_in_rates(), run.hosts_of_ranks()
    ranks = sorted(rates)
    figure = new_figure(height=max(2.6, 1.3 + min(0.26 * len(ranks), 9.0)))
    for place, (test, title) in enumerate(PANELS):
        axes = figure.add_subplot(1, len(PANELS), place + 1)
        axes.barh(range(len(ranks)), [rates[rank][test] for rank in ranks], height=0.75 if len(ranks) <= MOST_RANKS_WITH_NAMES else 1.0,
                  color=[OF_VERDICT[hosts[rank]["verdict"]] for rank in ranks])
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
        axes.set_xlabel(title)
        if place == 0 and len(ranks) <= MOST_RANKS_WITH_NAMES:
            axes.set_yticks(range(len(ranks)), [f"rank {rank}, {hosts[rank]['host']}" for rank in ranks])
        elif place == 0:
            axes.set_ylabel("rank")
        else:
            axes.set_yticks([])
    verdicts = [verdict for verdict in OF_VERDICT if any(host["verdict"] == verdict for host in hosts.values())]
    legend_above(figure.axes[0], handles=[Patch(color=OF_VERDICT[verdict], label=f"host: {verdict}") for verdict in verdicts], ncols=len(verdicts))
    ranges = [f"{title} {min(rates[rank][test] for rank in ranks):.3g} to {max(rates[rank][test] for rank in ranks):.3g}"
              for test, title in PANELS]
    wrong = [f"{host['host']}: {host['verdict']}" for host in run.data["hosts"] if host["verdict"] != "pass"]
    return Chart(
        title="Speed of each rank" + (f" ({run.path.name})" if several else ""),
        explanation="Medians over all passes: a product of two matrices in f32, and a copy of memory, whose bytes count twice. All ranks measure "
                    "at the same time. The colour is the verdict on the rank's host, which may have another reason: see the findings.",
        alt=f"Speed of {len(ranks)} ranks, {', '.join(ranges)}. " + (f"{'; '.join(wrong)}." if wrong else "All hosts pass."),
        figure=figure,
        columns=("rank", "host", "verdict", *(title for _, title in PANELS)),
        rows=[(rank, hosts[rank]["host"], hosts[rank]["verdict"], *(f"{rates[rank][test]:.3f}" for test, _ in PANELS)) for rank in ranks])
