"""The report's sections on a search for a plan: the best, its time and memory, why not another, and how far to trust it."""

import search
from forms import SEARCH_MEMORY
from page import Section, folded, table
from search_run import GIGABYTE, gigabytes_text, seconds_text

COMMAND = "lockstep plan search MODEL --gpus N --html FILE"
MOST_PLANS, MOST_STAGES = 10, 16  # of a table that is not folded


def search_sections(results):
    return [own for run in results.searches for own in _sections(run, len(results.searches) > 1)]


def _sections(run, is_one_of_several):
    suffix = f" of {run.path.stem}" if is_one_of_several else ""
    makers = (_fastest, _best_plans, _lengths, _time_over_memory, _memory, _why_not, _what_if, _trust)
    return [own for maker in makers if (own := maker(run, suffix))]


def _fastest(run, suffix):
    best, chart = run.best, search.waterfall(run)
    least, most = best.data["interval"]
    tokens = float(f"{best.data['tokens_per_second']:.4g}")
    finding = (f"{best.name}: {seconds_text(best.seconds)} a step ({seconds_text(least)} to {seconds_text(most)}) and {tokens:,.10g} tokens/s on "
               f"{run.where} with {run.data['profile']}. It is the fastest of {run.data['considered']} plans.")
    return Section(f"The fastest plan{suffix}", finding, chart.explanation, [chart], COMMAND, "parallel/planner/step_time.h")


def _best_plans(run, suffix):
    plans, best = run.plans[:MOST_PLANS], run.best
    rows = [(plan.name, f"{plan.seconds:.4g}", f"{plan.seconds / best.seconds:.3f}", f"{plan.data['model_tflops_per_gpu']:.1f}",
             f"{plan.memory / GIGABYTE:.1f}", *(f"{100 * plan.part(part):.1f}" for part in ("bubble", "tp", "dp")),
             plan.data["verdict"] if plan.fits else "does not fit") for plan in plans]
    columns = ("plan", "seconds", "over the best", "TFLOP/s", "GB", "bubble %", "tp %", "dp %", "memory")
    others = [plan for plan in plans[1:] if plan.fits]
    finding = (f"The second, {others[0].name}, takes {100 * (others[0].seconds / best.seconds - 1):.1f} % longer." if others
               else "No other plan that was replayed fits.")
    return Section(f"The best plans{suffix}", finding, "TFLOP/s are the model's own on each GPU, without recomputation; GB are those of the "
                   "fullest GPU; bubble, tp and dp are parts of the step.", [], COMMAND, "parallel/planner/search.h", body=table(columns, rows))


def _lengths(run, suffix):
    chart = search.lengths(run)
    return Section(f"Tensor and pipeline lengths{suffix}", chart.alt, chart.explanation, [chart], COMMAND, "parallel/planner/plan_space.h")


def _time_over_memory(run, suffix):
    chart = search.time_over_memory(run)
    return Section(f"Time over memory{suffix}", chart.alt, chart.explanation, [chart], COMMAND, "parallel/planner/pipeline_time.h")


def _memory(run, suffix):
    stages = run.best.data["memory"]
    fullest = max(stages, key=lambda stage: stage["total"])
    largest = max(SEARCH_MEMORY, key=lambda name: fullest[name])
    rows = [(stage["stage"], *(f"{stage[name] / GIGABYTE:.1f}" for name in (*SEARCH_MEMORY, "total"))) for stage in stages]
    every = table(("stage", *SEARCH_MEMORY, "total"), rows)
    finding = (f"Stage {fullest['stage']} holds the most, {gigabytes_text(fullest['total'])} of {gigabytes_text(run.limit)} on each GPU; most of "
               f"it is {largest}, {gigabytes_text(fullest[largest])}.")
    return Section(f"Memory of each stage{suffix}", finding, "GB on each GPU of a stage.", [], COMMAND, "parallel/planner/step_memory.h",
                   body=every if len(stages) <= MOST_STAGES else folded(f"{len(stages)} stages", every))


def _why_not(run, suffix):
    explained = run.data["why_not"] + run.data["neighbours"]
    if not explained:
        return None
    predicted = [entry for entry in explained if "seconds" in entry and "does not fit" not in entry["verdict"]]
    nearest = min(predicted, key=lambda entry: entry["seconds"], default=None)
    finding = f"{len(predicted)} of {len(explained)} changes to the best plan give a plan that fits."
    if nearest:
        finding += f" The fastest of them is {nearest['change']}: {nearest['verdict']}."
    rows = [(entry["change"], f"{entry['seconds']:.4g}" if "seconds" in entry else "-", entry["verdict"]) for entry in explained]
    return Section(f"Why not another plan{suffix}", finding, "The differences of time are by part of the step, the largest first.", [],
                   "lockstep plan search MODEL --gpus N --why-not tp=16,pp=8", "parallel/planner/explain.cc",
                   body=table(("change", "seconds", "why not"), rows))


def _what_if(run, suffix):
    changes, advice = run.data["what_if"], run.data["advice"]
    if not changes:
        return None
    most = max(changes, key=lambda change: change["saved"])
    rows = [(change["change"], f"{change['seconds']:.4g}", f"{100 * change['saved']:.1f}") for change in changes]
    body = table(("change", "seconds", "saved %"), rows)
    if advice:
        body += table(("advice on shapes",), [(line,) for line in advice])
    return Section(f"What if{suffix}", f"{most['change'].capitalize()} would save the most: {100 * most['saved']:.1f} % of the step.",
                   "The best plan as it is, on other hardware; with --double, the search chooses anew.", [],
                   "lockstep plan search MODEL --gpus N --double nvlink", "parallel/planner/explain.cc", body=body)


def _trust(run, suffix):
    best, rejected = run.best, run.data["rejected"]
    least, most = best.data["interval"]
    share = (most - least) / 2 / best.seconds
    finding = (f"The step takes from {seconds_text(least)} to {seconds_text(most)}, {100 * share:.1f} % either way: the uncertainty of "
               f"{run.data['profile']} for plans like those that it was compared with. The closed form, which ranks all plans, was at most "
               f"{100 * run.data['closed_form_error']:.1f} % away from the replays.")
    body = table(("plans", "rejected because"), sorted(((entry["plans"], entry["reason"]) for entry in rejected), reverse=True))
    return Section(f"How far to trust it{suffix}", finding,
                   "plan validate compares predictions with published runs, row by row. Plans beyond the best by the closed form were not "
                   "replayed; --replay takes more.", [], "lockstep plan validate", "parallel/planner/tables", body=body if rejected else "")
