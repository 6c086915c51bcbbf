"""The report's section on a history: which rows changed at which night, and what else changed then."""

from collections import Counter

import history
from page import Section, table
from results import Results


def slower_rows(results):
    """(slower rows, all rows) of all histories."""
    rows = [row for run in results.histories for row in run.rows]
    return [row for row in rows if row["slower"]], rows


def history_sections(results):
    return [_section(run, len(results.histories) > 1) for run in results.histories]


def _section(run, is_one_of_several):
    slower = [row for row in run.rows if row["slower"]]
    charts = history.charts(Results(histories=[run]))
    rows = [_event(run, night, found) for night, found in history.changes_by_night(run).items()]
    finding = f"{len(slower)} of {len(run.rows)} rows are slower than before, on {len(run.nights)} nights from {run.period}."
    if run.data["wrong"]:
        finding += f" {len(run.data['wrong'])} results of the last night were wrong."
    columns = ("night", "slower", "faster", "change", "what the results record as changed around that night", "rows")
    return Section("History" + (f" of {run.path.stem}" if is_one_of_several else ""), finding,
                   charts[0].explanation, charts, "lockstep history trend FOLDER --html FILE", "bench/results/change_points.h",
                   body=table(columns, rows) if rows else "", right=not slower and not run.data["wrong"])


def _event(run, night, found):
    changes = [change["change"] for _, change in found]
    least, most = history.percent(min(changes)), history.percent(max(changes))
    slower = sum(change > 0 for change in changes)
    around = [(at, text) for at in range(max(1, night - 1), min(night + 2, len(run.nights))) for text in run.nights[at]["changed"]]
    causes = "; ".join(text if at == night else f"{text} (on {run.label(at)})" for at, text in around)
    choices = dict.fromkeys(change["chosen"] for _, change in found if change["chosen"])
    causes = "; ".join([*([causes] if causes else []), *(f"auto chose {choice}" for choice in choices)])
    families = Counter(history.family_of(row["name"]) for row, _ in found)
    return (run.label(night), slower, len(found) - slower, least if least == most else f"{least} to {most}", causes or "nothing",
            ", ".join(f"{count} of {family}" for family, count in families.items()))
