"""The report's section on experts: who is busy, and who sends how many rows."""

import math

import experts
from chart import Chart, bytes_axis, bytes_text, colours, new_figure
from page import Section
from report_overview import shown


def experts_section(results):
    with_experts = [run for run, _ in experts.runs_with_experts(results)]
    runs = [(run, name) for run, name in shown(results) if run in with_experts]
    if not runs:
        return None
    run, name = max(runs, key=lambda item: sum(_sent(item[0].data["ranks"]).values()))
    step = run.data["steps"][-1]
    times = experts.busiest(step["tokens_of_experts"])
    finding = f"{name}: the busiest expert of a layer has {times:.2f} times the mean of its layer's tokens, so MaxVio is {times - 1:.2f}"
    if "dropped_share" in step:
        finding += f"; {100 * step['dropped_share']:.1f} % of all choices are dropped"
    if "router_entropy" in step:
        number = len(step["tokens_of_experts"][0])
        finding += f"; the routers' entropy is {step['router_entropy']:.2f} nats of {math.log(number):.2f}, that of {number} equal experts"
    finding += "."
    sent = _sent(run.data["ranks"])
    if any(sent.values()):
        most, least = max(sent, key=sent.get), min(sent, key=sent.get)
        finding += (f" In a step, rank {most} sends {bytes_text(sent[most])} of experts' rows, the most, and rank {least} "
                    f"{bytes_text(sent[least])}, the least.")
        computed = {rank["rank"]: rank["expert_rows"] for rank in run.data["ranks"] if "expert_rows" in rank}
        if computed:
            most, least = max(computed, key=computed.get), min(computed, key=computed.get)
            finding += f" The experts of rank {most} compute {computed[most]} rows, the most, and those of rank {least} {computed[least]}, the least."
    exchanged = [chart for trace in results.traces if (chart := experts.between_ranks(trace))][:1]
    charts = [*experts.charts_of_runs([(own, name) for own, name in runs]), *_exchanges(runs), *exchanged]
    return Section("Expert parallelism", finding, "Tokens count once for each expert that they chose. Equally busy experts do not mean that ranks send "
                   "equally much: a rank's rows for its own experts do not travel.", charts,
                   f"lockstep train moe --ranks {run.config['ranks']} --json FILE --trace FILE", "parallel/expert/experts.cc")


def _sent(ranks):
    """{rank: bytes of experts' rows that it sends in a step}"""
    return {rank["rank"]: sum(total for label, total in rank["sent_bytes"].items() if label.startswith(experts.EXCHANGES)) for rank in ranks}


def _exchanges(runs):
    """The bytes of each exchange that each rank sends, of the runs whose ranks exchange rows."""
    dividing = [(run, name) for run, name in runs if any(_sent(run.data["ranks"]).values())]
    if not dividing:
        return []
    rows = [(name, rank["rank"], label, total) for run, name in dividing for rank in run.data["ranks"]
            for label, total in rank["sent_bytes"].items() if label.startswith(experts.EXCHANGES)]
    labels = list(dict.fromkeys(row[2] for row in rows))
    places = list(dict.fromkeys(row[:2] for row in rows))
    figure = new_figure(height=1.2 + 0.32 * len(places))
    axes = figure.subplots()
    begins = [0] * len(places)
    for label, colour in zip(labels, colours(len(labels))):
        counts = [sum(row[3] for row in rows if row[:3] == (*place, label)) for place in places]
        axes.barh(range(len(places)), counts, left=begins, color=colour, label=label)
        begins = [begin + count for begin, count in zip(begins, counts)]
    axes.set_yticks(range(len(places)), [f"{name}, rank {rank}" for name, rank in places])
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    bytes_axis(axes.xaxis, max(begins))
    axes.set_xlabel("bytes of experts' rows sent in a step")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=2)
    return [Chart("Experts' rows that each rank sends", "What each rank sends in the exchanges of the last step.",
                  "Experts' rows sent in a step: " + "; ".join(f"{name}, rank {rank} {total} bytes" for (name, rank), total in zip(places, begins)) + ".",
                  figure, ("run", "rank", "exchange", "bytes of a step"), rows)]
