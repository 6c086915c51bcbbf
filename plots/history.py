"""Times of many nights relative to their base, a plot for each family of rows, with change points and outliers."""

from matplotlib.ticker import FuncFormatter

from chart import REFERENCE, SOFT, Chart, bytes_text, legend_right, line_styles, new_figure, time_text

MOST_DATES = 8  # under the axis
PLACES = {("in_place", "0"): "out-of-place", ("in_place", "1"): "in-place"}


def charts(results):
    return [_chart(run, family, rows) for run in results.histories for family, rows in _families(run).items()]


def changes_by_night(run):
    """{night: [(row, change)]}, in the order of the nights."""
    found = {}
    for row in run.rows:
        for change in row["changes"]:
            found.setdefault(change["night"], []).append((row, change))
    return dict(sorted(found.items()))


def percent(change):
    return f"{100 * change:+.1f} %"


def _numbers_of(name):
    """The parts of a row's name whose value is a number: ("bytes", "1024")."""
    parts = [part.partition(":") for part in name.split("/")]
    return [(key, value) for key, _, value in parts if value.isdecimal()]


def family_of(name):
    """Rows whose names differ only in numbers, such as sizes, are one family."""
    return "/".join(part for part in name.split("/") if not part.partition(":")[2].isdecimal())


def _families(run):
    families = {}
    for row in run.rows:
        families.setdefault(family_of(row["name"]), []).append(row)
    return families


def _names(rows):
    """A short name for each row of a family: the numbers in which they differ."""
    numbers = [_numbers_of(row["name"]) for row in rows]
    differ = [part for parts in numbers for part in parts if any(part not in other for other in numbers)]
    return [", ".join(bytes_text(int(value)) if key == "bytes" else PLACES.get((key, value), f"{key.replace('_', ' ')} {value}")
                      for key, value in parts if (key, value) in differ) or row["name"].split("/")[-1]
            for parts, row in zip(numbers, rows)]


def _base(row):
    """The time that the row's times are compared with: that of its base window, or its first."""
    return row.get("base_us") or row["points"][0]["us"]


def _draw(axes, row, name, style):
    base = _base(row)
    kept = [point for point in row["points"] if not point["outlier"]]
    axes.plot([point["night"] for point in kept], [point["us"] / base for point in kept], label=name, **{**style, "linewidth": 1.1})
    outliers = [point for point in row["points"] if point["outlier"]]
    axes.plot([point["night"] for point in outliers], [point["us"] / base for point in outliers], linestyle="", marker="x",
              markersize=8, color=style["color"])


def _mark_changes(axes, run, rows):
    nights = sorted({change["night"] for row in rows for change in row["changes"]})
    for night in nights:
        axes.axvline(night - 0.5, color=SOFT, linestyle=":", linewidth=1.2, marker="")
        axes.annotate(run.label(night)[:10], (night - 0.5, 1), xycoords=("data", "axes fraction"), xytext=(2, -2),
                      textcoords="offset points", rotation=90, va="top", fontsize=8, color=SOFT)


def _verdict(run, row):
    if row.get("drift") is not None:
        return f"drifts by {percent(row['drift'])}"
    return "; ".join(f"{percent(change['change'])} on {run.label(change['night'])}" for change in row["changes"]) or "no change"


def _row(run, name, row):
    outliers = ", ".join(run.label(point["night"]) for point in row["points"] if point["outlier"])
    return (name, len(row["points"]), f"{_base(row):.2f}", f"{row['level_us']:.2f}", percent(row["level_us"] / _base(row) - 1),
            _verdict(run, row), "slower" if row["slower"] else "-", outliers or "-")


def _chart(run, family, rows):
    names = _names(rows)
    title = f"History of {family}"
    figure = new_figure(width=11, height=max(4.2, 1.2 + 0.22 * len(rows)))
    figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    axes = figure.subplots()
    effect = run.data["effect"]
    axes.axhspan(1 / (1 + effect), 1 + effect, color="#eeeeee", zorder=0)
    axes.axhline(1, **{**REFERENCE, "marker": ""})
    for row, name, style in zip(rows, names, line_styles(len(rows))):
        _draw(axes, row, name, style)
    _mark_changes(axes, run, rows)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda ratio, _: f"{ratio:.0%}"))
    axes.set_ylabel("time / base" + (f"; grey: within {effect:.0%}" if effect else ""))
    step = -(-len(run.nights) // MOST_DATES)
    ticks = range(0, len(run.nights), step)
    axes.set_xticks(ticks, [run.label(night)[:10] for night in ticks], rotation=30, ha="right")
    axes.set_xlim(-0.7, len(run.nights) - 0.3)
    if any(point["outlier"] for row in rows for point in row["points"]):
        axes.plot([], [], linestyle="", marker="x", markersize=8, color=SOFT, label="outlier")
    legend_right(axes)
    slower = [(name, row) for name, row in zip(names, rows) if row["slower"]]
    worst = max(slower, key=lambda item: item[1]["level_us"] / _base(item[1]), default=None)
    finding = f"{len(slower)} of {len(rows)} rows are slower. " + (
        f"Most: {worst[0]}, {time_text(worst[1]['level_us'])} instead of {time_text(_base(worst[1]))}, {_verdict(run, worst[1])}."
        if worst else "")
    return Chart(
        title=title,
        explanation="The median time of each night, relative to the row's base: its nights before the first change, or those that --base "
                    "names. A dotted line stands before the first night of a new level, crosses are outliers, and the grey band is the "
                    "smallest change that is reported.",
        alt=f"Times of {family} on {len(run.nights)} nights, {run.period}, relative to their base. {finding.strip()}",
        figure=figure,
        columns=("row", "nights", "base µs", "level µs", "change", "changes", "verdict", "outliers"),
        rows=[_row(run, name, row) for name, row in zip(names, rows)])
