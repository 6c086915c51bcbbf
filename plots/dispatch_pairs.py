"""Training steps in which the passes of pairs of micro-batches overlap, and in which they do not: tokens per second over the link."""

from matplotlib.ticker import FuncFormatter

from chart import COLOURS, Chart, bytes_text, legend_right, new_figure

MOST_PANELS = 4
STYLES = {"one_by_one": {"color": COLOURS[1], "linestyle": "--"}, "in_turns": {"color": COLOURS[0], "linestyle": "-"}}
LABELS = {"one_by_one": "one by one", "in_turns": "in turns"}


def pairs_chart(run):
    groups = {}
    for pair in run.moe_pairs():
        groups.setdefault(pair.setting, []).append(pair)
    panels = [sorted(own, key=lambda pair: pair.bytes_per_second) for own in list(groups.values())[:MOST_PANELS]]
    if not panels:
        return None
    figure = new_figure(width=2.6 + 3.4 * len(panels), height=4.4)
    all_axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, own in zip(all_axes, panels):
        speeds = [pair.bytes_per_second / 1e9 for pair in own]
        for name, style in STYLES.items():
            axes.plot(speeds, [getattr(pair, name).tokens_per_second for pair in own], marker="o", label=LABELS[name], **style)
        axes.set_xscale("log", base=2)
        axes.set_xticks(speeds, [f"{speed:g}" for speed in speeds])
        axes.minorticks_off()
        axes.set_xlabel("bandwidth, GB/s")
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda tokens, _: f"{tokens:,.0f}"))
        axes.set_title(_setting_text(own[0]), loc="left", fontsize=10)
    all_axes[0].set_ylabel("tokens per second")
    legend_right(all_axes[-1])
    shown = [pair for own in panels for pair in own]
    best = max(shown, key=_speedup)
    return Chart(
        title="Overlapped passes of pairs of micro-batches",
        explanation="Virtual time of training steps under dualpipe-v, with --overlap-pairs (in turns) and without (one by one): while "
                    "the rows of one pass travel to experts and back, the other pass computes. This saves the most where rows take as "
                    "long as computing.",
        alt=f"Passes in turns are up to {_speedup(best):.2f} times as fast as one by one: at {best.bytes_per_second / 1e9:g} GB/s, "
            f"{_setting_text(best)}.",
        figure=figure,
        columns=("skew", "ranks", "K", "tokens", "link", "one by one, ms", "in turns, ms", "times as fast", "exposed one by one, ms",
                 "exposed in turns, ms", "memory one by one", "memory in turns"),
        rows=[(*pair.setting, pair.link, *(f"{1e3 * step.seconds:.3f}" for step in (pair.one_by_one, pair.in_turns)),
               f"{_speedup(pair):.3f}", *(f"{1e3 * step.exposed_seconds:.3f}" for step in (pair.one_by_one, pair.in_turns)),
               *(bytes_text(step.peak_bytes) for step in (pair.one_by_one, pair.in_turns))) for pair in shown])


def _speedup(pair):
    return pair.one_by_one.seconds / pair.in_turns.seconds


def _setting_text(pair):
    return f"{pair.skew}, {pair.ranks} ranks, K {pair.per_token}, {pair.tokens} tokens"
