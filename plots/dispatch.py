"""Ways in which rows travel to experts on other ranks: time over latency, tokens, experts per token or ranks; and the price of skew."""

from matplotlib.ticker import FuncFormatter

from chart import COLOURS, REFERENCE, SOFT, Chart, bytes_text, legend_right, line_styles, log2_axis, new_figure, time_text, times_axis
from dispatch_pairs import pairs_chart

MOST_PANELS = 4
METHODS = ("all_to_all", "two_level", "padded", "deduplicated", "all_gather")
STYLES = dict(zip(METHODS, line_styles(len(METHODS))))
STYLES["all_to_all"]["linewidth"] = 3.5  # lines of others lie on it
CLOSED_FORM = {"color": SOFT, "linestyle": "", "marker": "+", "markersize": 9, "zorder": 8}
# What points may vary: (name, label of the axis, value of a point).
AXES = (("latency", "latency between nodes", lambda point: point.latency_seconds),
        ("tokens", "tokens of a rank", lambda point: point.tokens),
        ("per_token", "experts per token", lambda point: point.per_token),
        ("ranks", "ranks", lambda point: point.ranks))


def charts(results):
    found = []
    for run in results.benchmarks:
        points = list(run.moe_points())
        if points:
            found += [_time_chart(run, points), _price_chart(run), pairs_chart(run)]
    return [chart for chart in found if chart]


def style_of(method):
    return STYLES.get(method, {"color": COLOURS[-1], "marker": "x"})


def _grouped(items, key):
    groups = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def _setting_text(point, over=""):
    parts = [("skew", point.skew), ("ranks", f"{point.ranks} ranks"), ("per_token", f"K {point.per_token}"),
             ("tokens", f"{point.tokens} tokens")]
    return ", ".join(text for name, text in parts if name != over)


def _place(point, over):
    """What a panel's points have in common. Points over the latency have links that differ in it."""
    return tuple(getattr(point, name) for name in ("skew", "ranks", "per_token", "tokens", "link")
                 if name != over and not (over == "latency" and name == "link"))


def _panels(axes_list, figure):
    return figure.subplots(1, len(axes_list), sharey=True, squeeze=False)[0]


def _time_chart(run, points):
    axis = next((axis for axis in AXES if len({axis[2](point) for point in points}) > 1), AXES[-1])
    over, label, value = axis
    panels = dict(list(_grouped(points, lambda point: _place(point, over)).items())[:MOST_PANELS])
    methods = list(dict.fromkeys(point.method for own in panels.values() for point in own))
    figure = new_figure(width=3.0 + 3.4 * len(panels), height=4.6)
    all_axes = _panels(panels, figure)
    crossings = []
    for axes, own in zip(all_axes, panels.values()):
        for method in methods:
            line = sorted((point for point in own if point.method == method), key=value)
            axes.plot([value(point) for point in line], [1e6 * point.dispatch_seconds for point in line], label=method, **style_of(method))
            marks = [point for point in line if point.expected_dispatch_seconds is not None]
            axes.plot([value(point) for point in marks], [1e6 * point.expected_dispatch_seconds for point in marks],
                      label="closed form" if method == methods[-1] else None, **CLOSED_FORM)
        settings = {_place(point, over) for point in own}
        for crossing in run.moe_crossovers():
            if crossing.over == over and _place(crossing, over) in settings and crossing.method in methods:
                axes.axvline(crossing.at, color=style_of(crossing.method)["color"], linewidth=1, linestyle=":")
                crossings.append((crossing, _setting_text(own[0], over)))
        axes.set_title(_setting_text(own[0], over), loc="left", fontsize=10)
        values = sorted({value(point) for point in own})
        if over == "latency":
            # Times are straight lines over the latency only if neither axis is logarithmic.
            axes.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: time_text(1e6 * seconds)))
            axes.yaxis.set_major_formatter(FuncFormatter(lambda microseconds, _: time_text(microseconds)))
            axes.set_ylim(bottom=0)
            axes.set_xlabel(label)
        else:
            log2_axis(axes, values, label)
            times_axis(axes)
    all_axes[0].set_ylabel("rows to the experts")
    legend_right(all_axes[-1])
    said = [f"{setting}: {c.method} is {'faster' if c.is_faster_above else 'slower'} than all_to_all above {_at_text(c)}"
            for c, setting in crossings]
    return Chart(
        title=f"Time of rows to experts on other ranks: {run.model}",
        explanation="Virtual time in which only messages take time, of the slowest rank; crosses are closed forms, which are exact where "
                    "all pairs of ranks have equally many rows. Dotted lines: where a way takes as long as all_to_all. Two levels win where "
                    "the latency between nodes is above the time of the rows of a pair of ranks inside a node.",
        alt="Time of rows to experts. " + ("; ".join(said) or "No way crosses all_to_all") + ".",
        figure=figure,
        columns=("method", "skew", "ranks", "K", "tokens", "link", "to the experts, µs", "closed form, µs", "back, µs", "busiest rank sends",
                 "mean", "messages", "dropped"),
        rows=[_row(point) for own in panels.values() for point in own])


def _row(point):
    expected = point.expected_dispatch_seconds
    return (point.method, point.skew, point.ranks, point.per_token, point.tokens, point.link, f"{1e6 * point.dispatch_seconds:.2f}",
            "" if expected is None else f"{1e6 * expected:.2f}", f"{1e6 * point.combine_seconds:.2f}", bytes_text(point.dispatch_bytes),
            bytes_text(point.mean_dispatch_bytes), point.dispatch_messages, f"{100 * point.dropped_share:.1f} %")


def _at_text(crossing):
    if crossing.over == "latency":
        return f"{time_text(1e6 * crossing.at)} of latency between nodes"
    return f"{crossing.at:.4g} {dict(tokens='tokens', per_token='experts per token', ranks='ranks')[crossing.over]}"


def _price_chart(run):
    prices = run.moe_prices()
    if not prices:
        return None
    panels = dict(list(_grouped(prices, lambda price: (price.link, price.ranks, price.per_token, price.tokens)).items())[:MOST_PANELS])
    methods = list(dict.fromkeys(price.method for price in prices))
    skews = list(dict.fromkeys(price.skew for price in prices))
    figure = new_figure(width=2.6 + 3.2 * len(panels), height=4.2)
    all_axes = _panels(panels, figure)
    width = 0.8 / len(methods)
    for axes, own in zip(all_axes, panels.values()):
        for place, method in enumerate(methods):
            bars = [(skews.index(price.skew) + (place - (len(methods) - 1) / 2) * width, price.times) for price in own
                    if price.method == method]
            axes.bar([x for x, _ in bars], [times for _, times in bars], width=width, label=method, color=style_of(method)["color"])
        axes.axhline(1, **REFERENCE)
        axes.set_xticks(range(len(skews)), skews)
        axes.set_title(f"{own[0].ranks} ranks, K {own[0].per_token}, {own[0].tokens} tokens", loc="left", fontsize=10)
        axes.grid(axis="x", visible=False)
    all_axes[0].set_ylabel("times as long as even rows")
    legend_right(all_axes[-1])
    worst = max(prices, key=lambda price: price.times)
    return Chart(
        title=f"The price of skew: {run.model}",
        explanation="How many times as long the rows of a layer take, both ways, as when all experts are chosen equally often. Padded "
                    "messages are always equal, and tokens beyond the capacity are dropped instead.",
        alt=f"Skew costs the most with {worst.method}: {worst.times:.2f} times the time with {worst.skew}, {worst.ranks} ranks, "
            f"K {worst.per_token}.",
        figure=figure,
        columns=("method", "skew", "ranks", "K", "tokens", "link", "times as long"),
        rows=[(price.method, price.skew, price.ranks, price.per_token, price.tokens, price.link, f"{price.times:.3f}") for price in prices])
