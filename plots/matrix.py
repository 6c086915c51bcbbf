"""Bytes sent from each rank to each other, for each collective in a trace."""

from chart import Chart, bytes_text, new_figure

MOST_PANELS = 6
MOST_RANKS_WITH_NUMBERS = 8


def charts(results):
    return [chart for trace in results.traces for chart in _charts(trace, len(results.traces) > 1)]


def messages(trace):
    """{(collective, its bytes): {(from, to): (messages, bytes)}}, for one call of each collective."""
    receivers = {event["id"]: event["pid"] for event in trace.events if event["ph"] == "f"}
    totals, calls, pending = {}, {}, {}
    # Events are written when they end: a collective's event follows those of its messages, even if no time passes.
    for event in trace.events:
        track = event["pid"], event.get("tid")
        if event["ph"] == "s" and event["id"] in receivers:
            pending.setdefault(track, []).append(event)
        elif event["ph"] == "X" and event.get("cat") == "communication":
            name = event["name"], event["args"]["bytes"]
            counts = calls.setdefault(name, {})
            counts[event["pid"]] = counts.get(event["pid"], 0) + 1
            for message in pending.pop(track, []):
                if message["ts"] < event["ts"]:  # sent before this collective
                    continue
                pair = totals.setdefault(name, {}).setdefault((message["pid"], receivers[message["id"]]), [0, 0])
                pair[0] += 1
                pair[1] += message["args"]["bytes"]
    return {name: {pair: (count / max(calls[name].values()), total / max(calls[name].values()))
                   for pair, (count, total) in sorted(pairs.items())} for name, pairs in totals.items()}


def _charts(trace, several):
    found = messages(trace)
    if not found:
        return []
    # The collectives that move most bytes.
    chosen = sorted(found, key=lambda name: -sum(total for _, total in found[name].values()))[:MOST_PANELS]
    ranks = 1 + max(rank for name in chosen for pair in found[name] for rank in pair)
    columns = min(3, len(chosen))
    lines = -(-len(chosen) // columns)
    figure = new_figure(width=3.4 * columns + 0.6, height=3.3 * lines + 0.3)
    rows = []
    for panel, name in enumerate(chosen):
        axes = figure.add_subplot(lines, columns, panel + 1)
        _draw(figure, axes, found[name], ranks)
        axes.set_title(f"{name[0]} of {bytes_text(name[1])}")
        rows += [(name[0], bytes_text(name[1]), source, target, f"{count:g}", f"{total:g}")
                 for (source, target), (count, total) in found[name].items()]
    busiest = {name: max(_sums(found[name], 0)) for name in chosen}
    return [Chart(
        title="Messages between ranks" + (f" ({trace.path.name})" if several else ""),
        explanation="Bytes that each rank (row) sends to each other (column) in one call. A ring is a diagonal, a tree a "
                    "few cells, an exchange of all with all a full square. Direct reads of another rank's memory are no "
                    "messages.",
        alt="Messages between ranks. Most that one rank sends in a call: "
            + ", ".join(f"{name[0]} of {bytes_text(name[1])} {busiest[name]:g} bytes" for name in chosen) + ".",
        figure=figure,
        columns=("collective", "size", "from rank", "to rank", "messages", "bytes"),
        rows=rows)]


def _sums(pairs, end):
    sums = {}
    for pair, (_, total) in pairs.items():
        sums[pair[end]] = sums.get(pair[end], 0) + total
    return sums.values()


def _draw(figure, axes, pairs, ranks):
    cells = [[pairs.get((source, target), (0, 0))[1] or float("nan") for target in range(ranks)] for source in range(ranks)]
    most = max(total for _, total in pairs.values())
    image = axes.imshow(cells, cmap="Blues", vmin=0, vmax=most * 1.3)
    if ranks <= MOST_RANKS_WITH_NUMBERS:
        for (source, target), (_, total) in pairs.items():
            axes.text(target, source, bytes_text(round(total)).replace(" ", "\n"), ha="center", va="center", fontsize=7,
                      color="white" if total > 0.7 * most * 1.3 else "black")
        axes.set_xticks(range(ranks))
        axes.set_yticks(range(ranks))
    else:
        bar = figure.colorbar(image, ax=axes, shrink=0.8)
        bar.ax.yaxis.set_major_formatter(lambda count, _: bytes_text(count))
    axes.grid(visible=False)
    axes.set_xlabel("to rank")
    axes.set_ylabel("from rank")
