"""The report's sections on machines: a burn-in's verdicts, and the links between ranks."""

import burn_in
import pairs
from page import Section, table


def machine_sections(results):
    runs = [run for run in results.benchmarks if "verdict" in run.data or run.links()]
    return [(_burn_in if "verdict" in run.data else _links)(run, results, len(runs) > 1) for run in runs]


def _burn_in(run, results, is_one_of_several):
    data = run.data
    hosts, findings = data["hosts"], data["findings"]
    passing = sum(host["verdict"] == "pass" for host in hosts)
    text = (f"Verdict: {data['verdict']}. {passing} of {len(hosts)} hosts pass; {data['passes']} passes, {data['steps_compared']} repeated training "
            "steps compared.")
    if findings:
        text += " Found: " + "; ".join(f"{_where(found)}: {found['text']}" for found in findings) + "."
    body = table(("host", "verdict", "processor", "cores", "GPUs", "ranks"),
                 [(host["host"], host["verdict"], host["processor"], host["cores"], host["gpus"], ", ".join(str(rank["rank"]) for rank in host["ranks"]))
                  for host in hosts])
    if findings:
        body += table(("code", "verdict", "where", "found", "next"),
                      [(found["code"], found["verdict"], _where(found), found["text"], found["next"]) for found in findings])
    charts = [*burn_in.charts_of(run, results), *pairs.charts_of(run, results)]
    return Section("Burn-in" + (f" ({run.path.stem})" if is_one_of_several else ""), text,
                   "Speeds are compared with those of ranks with the same processor, links with those of the same class, and bits of training steps "
                   "with those of most ranks.", charts, "lockstep burn-in --json FILE", "bench/burn_in/burn_in.h", body=body,
                   right=data["verdict"] == "pass")


def _where(found):
    return ", ".join(found["hosts"]) or "all hosts"


def _links(run, results, is_one_of_several):
    slow = [entry["text"] for entry in run.slow_links()]
    text = f"{'; '.join(slow)}." if slow else f"None of {len(run.links())} links is slow for its class."
    charts = pairs.charts_of(run, results)
    return Section("Links between ranks" + (f" ({run.path.stem})" if is_one_of_several else ""), text,
                   charts[0].explanation if charts else "", charts, "lockstep bench pairs --json FILE", "bench/pairs/pairs.h", right=not slow)
