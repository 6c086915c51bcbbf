"""The report's sections on all runs together: verdict, summary, memory, correctness; and the appendix."""

import loss
import memory
import plot
from chart import bytes_text, time_text
from page import Section, folded, picture, table
from report_history import slower_rows
from results import Results

# Largest relative difference of losses from the one-rank run, in f64: only the order of sums differs.
PARITY_LIMIT = 1e-10


def shown(results):
    """(run, name) of the runs to show. Runs in f64 next to others only check that the values are right."""
    named = list(zip(results.trainings, results.run_names()))
    chosen = [(run, name) for run, name in named if run.config["dtype"] != "f64"] or named
    return sorted(chosen, key=lambda item: not item[0].is_reference)  # one rank first


def only_shown(results):
    return Results(trainings=[run for run, _ in shown(results)])


def busiest(run, kind, use="total"):
    """The most of any rank: of bytes sent, or of memory."""
    return max(rank[kind].get(use, 0) for rank in run.data["ranks"])


def exposed_share(run):
    """The share of all ranks' time in which they wait for communication; None if nothing was timed."""
    exposed = sum(rank["time"]["exposed_communication"] for rank in run.data["ranks"])
    total = exposed + sum(rank["time"]["busy"] for rank in run.data["ranks"])
    return exposed / total if total > 0 else None


def speed_up(run, results):
    """How many times as fast as the one-rank run of the same training, on the same clock; None without it."""
    reference = next((other for other, _ in shown(results) if other.is_reference and other.same_training(run)
                      and other.config["clock"] == run.config["clock"]), None)
    return run.tokens_per_second() / reference.tokens_per_second() if reference else None


def verdict(results):
    lines = [line for run in results.trainings for line in run.data["theory"] if line["exact"]]
    differ = sum(line["expected"] != line["measured"] for line in lines)
    # Below zero if results were not checked, for example without data.
    checked = [point.values["wrong"] for run in results.benchmarks for point in run.points() if point.values["wrong"] >= 0]
    worst = [max(loss.relative_differences(run, reference)) for run in results.trainings
             if run.config["dtype"] == "f64" and (reference := loss.reference_of(run, results))]
    sentences = []
    if lines:
        sentences.append(f"Theory = measured: {len(lines) - differ} of {len(lines)} closed forms equal the measured values.")
    if worst:
        sentences.append(f"Same as one rank: in {len(worst)} f64 runs, losses differ from the one-rank run's by at most "
                         f"{max(worst):.1e}, relative.")
    if checked:
        sentences.append(f"Wrong elements in {len(checked)} measurements of collectives: {sum(checked):.0f}.")
    machines = [run.data["verdict"] for run in results.benchmarks if "verdict" in run.data]
    if machines:
        sentences.append(f"Machines, by burn-in: {', '.join(machines)}.")
    of_links = [run for run in results.benchmarks if "verdict" not in run.data]  # a burn-in judges its links itself
    links = [link for run in of_links for link in run.links()]
    slow_links = [slow for run in of_links for slow in run.slow_links()]
    if links:
        sentences.append(f"Slow parts of the network, in measurements of {len(links)} links: {len(slow_links)}.")
    slower, rows = slower_rows(results)
    if rows:
        sentences.append(f"Rows of the history that are slower than before: {len(slower)} of {len(rows)}.")
    if results.searches and not sentences and not list(results.environments()):
        return None  # nothing ran
    right = (not slower and not slow_links and set(machines) <= {"pass"} and differ == 0 and max(worst, default=0) <= PARITY_LIMIT
             and sum(checked) == 0)
    body = table(("", ""), _where(results))
    return Section("Verdict", " ".join(sentences) or "Nothing here was checked.", right=right, body=body)


def _where(results):
    """What the results were made with."""
    environments = list(results.environments())
    values = {key: list(dict.fromkeys(str(environment[key]) for environment in environments if environment.get(key)))
              for key in ("host", "processor", "cores", "memory_bytes", "gpu", "system", "version", "commit", "command")}
    values["cores"] = [f"{count} cores" for count in values["cores"]]
    values["memory_bytes"] = [bytes_text(float(count)) for count in values["memory_bytes"]]
    rows = [(key.replace("_bytes", ""), ", ".join(found)) for key, found in values.items() if found and key != "command"]
    commands = values["command"]
    rows += [("command", commands[0] if len(commands) == 1 else f"{len(commands)}, one with each result")] if commands else []
    times = sorted(environment["time"] for environment in environments if environment.get("time"))
    rows += [("time", times[0] if times[0] == times[-1] else f"{times[0]} to {times[-1]}")] if times else []
    return rows + [("clock", text) for text in _clocks(results)]


def _clocks(results):
    links = sorted({_link_words(run.config["link"]) for run, _ in shown(results) if run.config["clock"] == "cpu"})
    clocks = {run.config["clock"] for run, _ in shown(results)} | {run.clock for run in results.benchmarks if list(run.points())}
    return [text for clock, text in (
        ("wall", "wall: real time"),
        ("cpu", f"cpu: each rank's own compute time, as if it had a core to itself; links: {'; or '.join(links)}"),
        ("unit", "unit: messages take the time that the link model gives; compute takes no time, or the time that a table gives")) if clock in clocks]


def _link_words(link):
    """"alpha=2e-06,beta=2e-11" -> "2 µs latency, 50 GB/s" """
    values = {key: float(value) for key, value in (item.split("=") for item in link.split(",") if item)}

    def one(prefix):
        rate = values.get(f"{prefix}beta", 0)
        return time_text(1e6 * values.get(f"{prefix}alpha", 0)) + " latency" + (f", {1e-9 / rate:g} GB/s" if rate > 0 else "")

    if "node" not in values:
        return one("")
    return f"{one('node-')} inside nodes of {values['node']:.0f} ranks, {one('')} between them"


def summary(results):
    runs = shown(results)
    if not runs:
        return None
    rows = []
    for run, name in runs:
        share, ratio, bubble = exposed_share(run), speed_up(run, results), run.data.get("bubble")
        rows.append((name, run.config["ranks"], f"{ratio:.2f}" if ratio else "-",
                     f"{100 * share:.1f} %" if share is not None else "-", bytes_text(busiest(run, "sent_bytes")),
                     bytes_text(busiest(run, "peak_bytes")), f"{100 * bubble['fraction']:.1f} %" if bubble else "-"))
    sentences = []
    ratios = [(ratio, name, run) for run, name in runs if (ratio := speed_up(run, results)) and not run.is_reference]
    if ratios:
        ratio, name, run = max(ratios, key=lambda item: item[0])
        sentences.append(f"Fastest: {name}, {ratio:.2f} times one rank's speed.")
    several = [(run, name) for run, name in runs if run.config["ranks"] > 1]
    if several:
        run, name = min(several, key=lambda item: busiest(item[0], "peak_bytes"))
        sentences.append(f"Least memory on its busiest rank: {name}, {bytes_text(busiest(run, 'peak_bytes'))}.")
        run, name = min(several, key=lambda item: busiest(item[0], "sent_bytes"))
        sentences.append(f"Fewest bytes sent by its busiest rank: {name}, {bytes_text(busiest(run, 'sent_bytes'))} a step.")
    if not sentences:
        run, name = runs[0]
        sentences.append(f"{name}: {run.tokens_per_second():.0f} tokens per second.")
    columns = ("technique", "ranks", "speed-up", "exposed communication", "bytes sent, busiest rank", "peak memory, busiest rank",
               "bubble")
    return Section("Summary", " ".join(sentences), body=table(columns, rows),
                   reading="Speed-up: over one rank on the same clock. Exposed: the share of all ranks' time in which they wait for "
                           "communication. Bytes are per step, or per run for asynchronous workers. Bubble: the share "
                           "of a pipeline's time in which its ranks are idle.",
                   command="lockstep demo", source="parallel/plan/techniques.cc")


def slow_ranks(results):
    """The ranks that were slow, in training runs and in benchmarks of collectives; None if no result names any."""
    named = [(name, run.data) for run, name in shown(results)] + [(_bench_name(run), run.data) for run in results.benchmarks]
    found = [(name, data) for name, data in named if data.get("slow_ranks", {}).get("ranks")]
    if not found:
        return None
    sentences, rows = [], []
    for name, data in found:
        slow = data["slow_ranks"]
        texts = [f"rank {rank['rank']} (host {rank['host']}, device {rank['device']}) takes {_times(rank)} as long for its own work as "
                 f"the median of {slow['compared']} ranks" for rank in slow["ranks"]]
        share = f"{100 * slow['explained_share']:.0f} % of all waiting"
        explains = "which explains" if len(texts) == 1 else "together they explain"
        sentences.append(f"{name}: {'; '.join(texts)}{', ' if len(texts) == 1 else '; '}{explains} {share}"
                         f"{': the cause' if slow['is_cause'] else ''}.")
        rows += [(name, rank["rank"], rank["host"], rank["device"], _times(rank), share) for rank in slow["ranks"]]
    columns = ("run", "rank", "host", "device", "own time over the median", "explains")
    return Section("Slow ranks", " ".join(sentences), body=table(columns, rows) + _rank_times(found),
                   reading="Own time: a step or an iteration without the time in which the rank waits for others. Only ranks with the same "
                           "work are compared. A rank is named if its own time exceeds the median by more than 3.5 times the spread and "
                           "10 %, again and again, and explains at least a fifth of all waiting; it is called the cause from 80 % on.",
                   command="lockstep train TECHNIQUE --json FILE", source="bench/results/outliers.h", right=False)


def _times(rank):
    return f"{rank['own'] / rank['median']:.2f} times" if rank["median"] > 0 else "far"


def _bench_name(run):
    return run.data["benchmarks"][0]["name"].split("/")[0] if run.data["benchmarks"] else "benchmark"


def _rank_times(found):
    """A table of the ranks of each training run: own time, waiting, and the rank for which each waits longest."""
    rows = []
    for name, data in found:
        for rank in data.get("ranks", []):
            own, waits = rank.get("own"), rank.get("waited_for")
            if own:
                rows.append((name, rank["rank"], time_text(1e6 * own["seconds"]), time_text(1e6 * own["waited"]),
                             f"rank {waits[0]['rank']}" if waits else "-"))
    return folded(f"Times of {len(rows)} ranks", table(("run", "rank", "own time", "waiting", "longest for"), rows)) if rows else ""


def memory_section(results):
    charts = memory.busiest_charts(only_shown(results), [name for _, name in shown(results)])
    if not charts:
        return None
    totals = sorted((busiest(run, "peak_bytes"), name) for run, name in shown(results))
    (least, low), (most, high) = totals[0], totals[-1]
    return Section("Memory", f"The busiest rank holds from {bytes_text(least)} ({low}) to {bytes_text(most)} ({high})."
                   if len(totals) > 1 else f"The busiest rank of {low} holds {bytes_text(least)}.",
                   charts[0].explanation, charts, "lockstep train TECHNIQUE --json FILE", "collectives/base/ledger.h")


def correctness(results):
    runs = [(run, name) for run, name in shown(results) if run.is_in_step]
    if not runs:
        return None
    first = runs[0][0]
    together = [(run, name) for run, name in runs if run.same_training(first)]
    chart = loss.curve_chart(together)
    rows = [(name, run.config["dtype"], len(run.steps("loss")),
             f"{max(loss.relative_differences(run, reference)):.1e}" if reference else "-")
            for run, name in zip(results.trainings, results.run_names())
            for reference in [loss.reference_of(run, results)] if not run.is_reference]
    begin, end = first.steps("loss")[0], first.steps("loss")[-1]
    deviations = [max(loss.relative_differences(run, reference)) for run, _ in runs
                  if (reference := loss.reference_of(run, results))]
    finding = f"The loss falls from {begin:.3f} to {end:.3f} in {len(first.steps('loss'))} steps of {runs[0][1]}."
    if deviations:
        dtype = first.config["dtype"]
        finding += f" In {dtype}, the other runs differ from one rank's by at most {max(deviations):.1e}, relative."
    columns = ("run", "type", "steps", "largest relative difference from one rank's loss")
    return Section("Correctness", finding, chart.explanation, [chart], "lockstep train TECHNIQUE --steps N --json FILE",
                   "parallel/serial/serial.cc", body=folded(f"Deviations: {len(rows)} runs", table(columns, rows)) if rows else "")


def appendix(results, titles):
    """The plots of all kinds that have none of the titles; closed forms; environments."""
    charts = [chart for name, kind in plot.KINDS.items() if name not in ("speed", "bubble") for chart in kind.charts(results)]
    parts = [f"<h3>{chart.title}</h3>{picture(chart)}" for chart in charts if chart.title not in titles]
    rows = [(name, line["quantity"], line["rank"], line["formula"], f"{line['expected']:.0f}", f"{line['measured']:.0f}",
             f"{line['measured'] - line['expected']:.0f}", "exact" if line["exact"] else "estimate")
            for run, name in zip(results.trainings, results.run_names()) for line in run.data["theory"]]
    if rows:
        columns = ("run", "quantity", "rank", "closed form", "expected", "measured", "deviation", "kind")
        parts.append(f"<h3>Closed forms</h3><p>P ranks, Psi parameters, beta bytes of an element.</p>{table(columns, rows)}")
    return "\n".join(parts + _environments(results))


def _environments(results):
    different = []
    for environment in results.environments():
        facts = {key: value for key, value in environment.items() if key not in ("time", "command")}
        if facts not in different:
            different.append(facts)
    keys = dict.fromkeys(key for environment in different for key in environment)
    rows = [(key, *(environment.get(key, "-") for environment in different)) for key in keys]
    columns = ("", *(f"machine {number + 1}" if len(different) > 1 else "" for number in range(len(different))))
    return [f"<h3>Where it ran</h3>{table(columns, rows)}"] if rows else []
