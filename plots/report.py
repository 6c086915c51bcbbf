"""python3 report.py FILE ... --output report.html: writes all plots of Lockstep's results to one page.

The page is self-contained: pictures, style and tables are inside it.
"""

import argparse
from html import escape

from chart import as_data_url
from plot import KINDS, checked_output, run, write_whole
from loss import reference_of, relative_differences
from results import BadInput, read

# Largest relative difference of losses from the one-rank run, in f64: only the order of sums differs.
PARITY_LIMIT = 1e-10

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; max-width: 68rem; margin: 2rem auto; padding: 0 1rem; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 2.5rem; }
figure { margin: 1rem 0; } img { max-width: 100%; height: auto; }
table { border-collapse: collapse; font-size: 0.875rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.2rem 0.7rem; border-bottom: 1px solid #ddd; text-align: right; } th { vertical-align: bottom; }
th:first-child, td:first-child, td.word { text-align: left; }
.wide { overflow-x: auto; } details { margin: 0.5rem 0; } summary { cursor: pointer; }
.right { color: #006b4f; font-weight: 600; } .wrong { color: #b00020; font-weight: 600; }
"""


def is_number(text):
    try:
        float(text)
    except ValueError:
        return False
    return True


def table(columns, rows):
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    cells = "\n".join("<tr>" + "".join(
        f"<td>{escape(str(cell))}</td>" if is_number(str(cell)) else f'<td class="word">{escape(str(cell))}</td>'
        for cell in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead>\n<tbody>{cells}</tbody></table></div>'


def section(chart):
    return (f"<section><h2>{escape(chart.title)}</h2>\n<p>{escape(chart.explanation)}</p>\n"
            f'<figure><img src="{as_data_url(chart.figure)}" alt="{escape(chart.alt)}">\n'
            f"<figcaption><details><summary>The numbers: {len(chart.rows)} rows</summary>\n"
            f"{table(chart.columns, chart.rows)}</details></figcaption></figure></section>")


def findings(results):
    """Whether closed forms equal measured values, f64 losses equal one rank's, and benchmarks had no wrong elements."""
    lines = [line for run in results.trainings for line in run.data["theory"] if line["exact"]]
    differ = sum(line["expected"] != line["measured"] for line in lines)
    # Below zero if results were not checked, for example without data.
    checked = [point.values["wrong"] for run in results.benchmarks for point in run.points() if point.values["wrong"] >= 0]
    sentences = []
    if lines:
        sentences.append((differ == 0, f"Theory = measured: {len(lines) - differ} of {len(lines)} closed forms equal the "
                                       "measured values."))
    exact_runs = [(run, reference) for run in results.trainings
                  if run.config["dtype"] == "f64" and (reference := reference_of(run, results))]
    if exact_runs:
        worst = max(max(relative_differences(run, reference)) for run, reference in exact_runs)
        sentences.append((worst <= PARITY_LIMIT, f"Same as one rank: the losses of {len(exact_runs)} runs in f64 differ from "
                                                 f"one rank's by at most {worst:.1e}, relative."))
    if checked:
        sentences.append((sum(checked) == 0, f"Wrong elements in the collectives measured: {sum(checked):.0f}."))
    return "\n".join(f'<p class="{"right" if right else "wrong"}">{escape(text)}</p>' for right, text in sentences)


def theory(results):
    rows = [(name, line["quantity"], line["rank"], line["formula"], f"{line['expected']:.0f}", f"{line['measured']:.0f}",
             f"{line['measured'] - line['expected']:.0f}", "exact" if line["exact"] else "estimate")
            for run, name in zip(results.trainings, results.run_names()) for line in run.data["theory"]]
    if not rows:
        return ""
    columns = ("run", "quantity", "rank", "closed form", "expected", "measured", "deviation", "kind")
    return (f"<section><h2>Closed forms</h2>\n<p>P ranks, Psi parameters, beta bytes of an element.</p>\n"
            f"<details open><summary>{len(rows)} lines</summary>\n{table(columns, rows)}</details></section>")


def environments(results):
    different = []
    for environment in results.environments():
        facts = {key: value for key, value in environment.items() if key != "time"}
        if facts not in different:
            different.append(facts)
    rows = [(key, *(environment.get(key, "-") for environment in different)) for key in (different or [{}])[0]]
    if not rows:
        return ""
    columns = ("", *(f"machine {number + 1}" if len(different) > 1 else "" for number in range(len(different))))
    return f"<section><h2>Where it ran</h2>\n{table(columns, rows)}</section>"


def page(results, title):
    charts = [chart for kind in KINDS.values() for chart in kind.charts(results)]
    if not charts:
        raise BadInput("the files hold no data for any plot")
    body = "\n".join([findings(results), *map(section, charts), theory(results), environments(results)])
    return (f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n"
            f"<body><h1>{escape(title)}</h1>\n{body}\n</body></html>\n")


def main():
    parser = argparse.ArgumentParser(prog="lockstep report", description="Writes all plots of Lockstep's results to one page.")
    parser.add_argument("files", nargs="+", metavar="FILE", help="written by --json or --trace")
    parser.add_argument("-o", "--output", default="report.html", metavar="PAGE", help="default: report.html")
    parser.add_argument("--title", default="Lockstep report")
    arguments = parser.parse_args()
    output = checked_output(arguments.output, (".html",))
    text = page(read(arguments.files), arguments.title)
    write_whole(output, lambda name: open(name, "w", encoding="utf-8").write(text))
    print(f"{output}: {len(text) // 1024} KiB")


if __name__ == "__main__":
    run(main)
