"""python3 report.py FILE ... --output report.html: summarises Lockstep's results on one page.

The page is self-contained: pictures, style, tables and the explorer of schedules are inside it. A section without results
is left out; plots that no section shows are in the appendix.
"""

import argparse

from forms import printable
from page import page
from plot import checked_output, run, write_whole
from report_collectives import all_reduce_sections, data_parallel_sections
from report_experts import experts_section
from report_history import history_sections
from report_machines import machine_sections
from report_models import (
    context_section, dispatch_section, exchange_section, factorings_section, local_steps_section, mesh_section, optimizers_section,
    pipeline_sections, sharded_section, tensor_section,
)
from report_overview import appendix, correctness, memory_section, slow_ranks, summary, verdict
from report_search import search_sections
from results import BadInput, read


def sections(results):
    found = [summary(results), slow_ranks(results), *machine_sections(results), *all_reduce_sections(results), *data_parallel_sections(results),
             *pipeline_sections(results), tensor_section(results), context_section(results), sharded_section(results), mesh_section(results),
             experts_section(results), dispatch_section(results), optimizers_section(results), local_steps_section(results),
             exchange_section(results), factorings_section(results), memory_section(results), correctness(results),
             *history_sections(results), *search_sections(results)]
    return [own for own in found if own]


def text_of(results, title):
    found = sections(results)
    shown = [chart.title for own in found for chart in own.charts]
    more = appendix(results, shown)
    if not found and not more:
        raise BadInput("the files hold no data for any plot")
    return page(title, [own for own in (verdict(results), *found) if own], more)


def main():
    parser = argparse.ArgumentParser(prog="lockstep report", description="Summarises Lockstep's results on one page.",
                                     epilog="Example: lockstep report serial.json ddp.json --output report.html")
    parser.add_argument("files", nargs="+", metavar="FILE", help="written by --json or --trace")
    parser.add_argument("-o", "--output", default="report.html", metavar="PAGE", help="default: report.html")
    parser.add_argument("--title", default="Lockstep report")
    arguments = parser.parse_args()
    output = checked_output(arguments.output, (".html",))
    text = text_of(read(arguments.files), printable(arguments.title))
    write_whole(output, lambda name: open(name, "w", encoding="utf-8").write(text))
    print(printable(f"{output}: {len(text) // 1024} KiB"))


if __name__ == "__main__":
    run(main)
