"""Every number in a finding of the report equals the result files', in the sections' given order.

python3 report_test.py PROGRAM SOURCE_FOLDER
"""

import copy
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import unittest

from plots_setting import PROGRAM, SOURCE  # first: it adds the plots to the path

import chart
import page
import report
import report_overview
import results
import schedule
import timeline

GOLDEN = SOURCE / "tests" / "golden" / "tiny"
TRAIN = ["--model", GOLDEN / "config.json", "--data", GOLDEN / "tokens.bin", "--global-batch", "8", "--clock", "cpu", "--link", "100gbe",
         "--threads", "1"]
RUNS = {"serial": ["serial"], "ddp": ["ddp", "--ranks", "4"], "gpipe": ["pipeline", "--ranks", "4", "--micro-batches", "8", "--schedule", "gpipe"],
        "1f1b": ["pipeline", "--ranks", "4", "--micro-batches", "8"], "sp": ["sp", "--ranks", "2"],
        "ring-attention": ["ring-attention", "--ranks", "2"],
        "3d": ["3d", "--ranks", "8", "--tp", "2", "--pp", "2", "--micro-batches", "2"]}
UNIT = ["--clock", "unit", "--device", "none", "-n", "1", "-w", "0"]
ORDER = ["Verdict", "Summary", "How a ring all-reduce works", "Bandwidth and scaling of collectives", "Data parallel: overlap",
         "Parameter server against ring", "Pipeline schedules", "Pipeline: bubble and memory", "Tensor and sequence parallelism",
         "Context parallelism", "3D parallelism", "Memory", "Correctness"]
MOST_SECTIONS = 15


def numbers(text):
    """The numbers of a sentence; names such as zb-h1, 1f1b and f64 are none."""
    return re.findall(r"(?<![\w.-])\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\w-])", text)


class Report(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        files = []

        def run(name, *words):
            done = subprocess.run([PROGRAM, *words], cwd=cls.folder, capture_output=True, text=True, timeout=200)
            assert done.returncode == 0, f"{words}: status {done.returncode}\n{done.stdout}{done.stderr}"
            files.append(cls.folder / name)

        for name, words in RUNS.items():
            run(f"check_{name}.json", "train", *words, *TRAIN, "--dtype", "f64", "--steps", "2", "--json", f"check_{name}.json")
            run(f"{name}.json", "train", *words, *TRAIN, "--steps", "6", "--json", f"{name}.json")
            if name != "serial":
                run(f"{name}.trace.json", "train", *words, *TRAIN, "--steps", "2", "--trace", f"{name}.trace.json")
        run("ring.trace.json", "bench", "all_reduce", "--ranks", "4", "-b", "4K", "-e", "4K", "-n", "1", "-w", "0", "-c", "0", "--clock", "unit",
            "--algorithm", "ring", "--trace", "ring.trace.json")
        run("real.json", "bench", "all_reduce", "--ranks", "2", "-b", "1K", "-e", "64K", "-f", "4", "-n", "4", "--algorithm",
            "ring,recursive_doubling", "--json", "real.json")
        for ranks in ("2", "16"):
            run(f"scaling_{ranks}.json", "bench", "all_reduce", "--ranks", ranks, *UNIT, "--link", "ndr", "-b", "1M", "-e", "1M", "--algorithm",
                "ring,binomial_tree", "--json", f"scaling_{ranks}.json")
        run("ps.json", "bench", "ps", "--workers", "2,8", "--servers", "1,all", "--algorithm", "ring", *UNIT, "--link", "10gbe", "-b", "1M",
            "-e", "1M", "--json", "ps.json")
        for name in ("gpipe", "zb-v"):
            run(f"schedule_{name}.json", "schedule", name, "-p", "4", "-m", "8", "--json", f"schedule_{name}.json")
        run("tensor.json", "bench", "tp", "--ranks", "1,4", "--variant", "tp,sp", "--link", "nvlink", "--json", "tensor.json")
        run("context.json", "bench", "cp", "--simulate", "--ranks", "4,2,8", "--heads", "16", "--kv-heads", "4", "--lengths", "64,4096",
            "--method", "ring-contiguous,ring-zig-zag,ulysses", "--json", "context.json")
        cls.files = files
        cls.results = results.read(files)
        cls.sections = {own.title: own for own in [report_overview.verdict(cls.results), *report.sections(cls.results)]}
        cls.text = report.text_of(cls.results, "Report")

    def json(self, name):
        return json.loads((self.folder / name).read_text())

    def runs(self, prefix=""):
        return {name: self.json(f"{prefix}{name}.json") for name in RUNS}

    def entries(self, *names):
        return [entry for name in names for entry in self.json(name)["benchmarks"] if entry["run_type"] == "iteration"]

    def check(self, title, *expected):
        self.assertEqual(numbers(self.sections[title].finding), list(map(str, expected)), self.sections[title].finding)

    def test_sections_are_in_the_given_order_and_few(self):
        self.assertEqual(list(self.sections), ORDER)
        self.assertEqual(re.findall(r"<h2>(.*?)</h2>", self.text), [*ORDER, "Appendix"])
        self.assertLessEqual(len([*ORDER, "Sharded data parallelism", "Appendix"]), MOST_SECTIONS)  # these results lack the former
        for own in self.sections.values():
            self.assertIn(f'<a href="#{own.name}">', self.text)
            self.assertIn(f'<section id="{own.name}">', self.text)
            if own.title != "Verdict":
                self.assertTrue(own.reading and own.command.startswith("lockstep ") and (SOURCE / own.source).exists(), own.title)

    def test_pictures_are_transparent(self):
        """A white part would be unreadable on a dark page."""
        for own in self.sections.values():
            for chart in own.charts:
                for part in (chart.figure, *chart.figure.subfigs):
                    self.assertEqual(part.get_facecolor()[3], 0, chart.title)

    def test_the_verdict_counts_closed_forms_and_deviations(self):
        runs = [*self.runs().values(), *self.runs("check_").values()]
        lines = [line for run in runs for line in run["theory"] if line["exact"]]
        equal = sum(line["expected"] == line["measured"] for line in lines)
        checks = self.runs("check_")
        reference = [step["loss"] for step in checks.pop("serial")["steps"]]
        worst = max(abs(step["loss"] - loss) / loss for run in checks.values() for step, loss in zip(run["steps"], reference))
        points = [entry for entry in self.entries("real.json", "scaling_2.json", "scaling_16.json", "ps.json") if entry.get("wrong", -1) >= 0]
        self.check("Verdict", equal, len(lines), len(checks), f"{worst:.1e}", len(points), 0)
        self.assertEqual(equal, len(lines))
        changed = copy.deepcopy(self.results)
        next(line for line in changed.trainings[0].data["theory"] if line["exact"])["measured"] += 4
        verdict = report_overview.verdict(changed)
        self.assertFalse(verdict.right)
        self.assertEqual(numbers(verdict.finding)[:2], [str(len(lines) - 1), str(len(lines))])

    def test_the_summary_compares_with_one_rank(self):
        runs = self.runs()

        def speed(run):
            return statistics.median(step["tokens_per_second"] for step in run["steps"])

        one = speed(runs.pop("serial"))
        fastest = max(speed(run) for run in runs.values())
        memory = min(max(rank["peak_bytes"]["total"] for rank in run["ranks"]) for run in runs.values())
        sent = min(max(rank["sent_bytes"]["total"] for rank in run["ranks"]) for run in runs.values())
        found = self.sections["Summary"].finding
        self.assertIn(f"{fastest / one:.2f} times one rank's speed", found)
        self.assertIn(f"{chart.bytes_text(memory)}. Fewest", found)
        self.assertIn(f"{chart.bytes_text(sent)} a step", found)

    def test_the_collectives_findings_are_the_files(self):
        sent = [event for event in self.json("ring.trace.json")["traceEvents"]
                if event["ph"] == "s" and event["args"]["operation"] == "all_reduce/ring" and event["pid"] == 0]
        calls = 2  # out of place, and in place
        self.check("How a ring all-reduce works", 4, 4, len(sent) // calls, sum(event["args"]["bytes"] for event in sent) // calls // 1024, "1.50")
        real = [entry for entry in self.entries("real.json") if "busbw_gb_per_s" in entry and entry["in_place"] == 1]
        best = max(real, key=lambda entry: entry["busbw_gb_per_s"])
        self.assertTrue(self.sections["Bandwidth and scaling of collectives"].finding.startswith(
            f"Highest bus bandwidth between 2 ranks: {best['busbw_gb_per_s']:.2f} GB/s, {best['name'].split('/')[1]} at "
            f"{chart.bytes_text(best['bytes'])}."))
        self.assertEqual(len(self.sections["Bandwidth and scaling of collectives"].charts), 2)
        for title, entries, unit in (("Bandwidth and scaling of collectives", self.entries("scaling_16.json"), "ranks"),
                                     ("Parameter server against ring", self.entries("ps.json"), "workers")):
            most = max(entry["ranks"] for entry in entries if "p50_us" in entry)
            times = sorted(entry["p50_us"] for entry in entries if "p50_us" in entry and entry["ranks"] == most and
                           (unit == "workers" or entry["in_place"] == 1))
            for text in (f"{most:.0f} {unit}", chart.time_text(times[0]), chart.time_text(times[-1])):
                self.assertIn(text, self.sections[title].finding)
        self.assertIn(f" {times[-1] / times[0]:.1f} times as long as the fastest", self.sections["Parameter server against ring"].finding)

    def test_the_models_findings_are_the_files(self):
        times = [rank["time"] for rank in self.json("ddp.json")["ranks"]]
        hidden, exposed, busy = (sum(time[key] for time in times) for key in ("hidden_communication", "exposed_communication", "busy"))
        self.check("Data parallel: overlap", 4, f"{100 * hidden / (hidden + exposed):.0f}", f"{100 * exposed / (busy + exposed):.1f}")
        bubbles = [self.json(f"schedule_{name}.json")["bubble"]["fraction"] for name in ("zb-v", "gpipe")]
        self.check("Pipeline schedules", f"{100 * bubbles[0]:.1f}", 4, f"{100 * bubbles[1]:.1f}")
        runs = {name: run for name, run in self.runs().items() if run["config"]["technique"] == "pipeline"}
        least = min(runs.values(), key=lambda run: run["bubble"]["fraction"])["bubble"]
        peak = max(rank["peak_bytes"]["activations"] for run in runs.values() for rank in run["ranks"])
        finding = self.sections["Pipeline: bubble and memory"].finding
        self.assertIn(f"{100 * least['fraction']:.2f} % measured, {100 * least['expected_fraction']:.2f} % by its closed form", finding)
        self.assertIn(f"{chart.bytes_text(peak)}.", finding)
        formless = copy.deepcopy(self.results)
        for run in formless.trainings:
            run.data.get("bubble", {}).pop("expected_fraction", None)
        (section,) = (own for own in report.sections(formless) if own.title == "Pipeline: bubble and memory")
        self.assertIn(f"{100 * least['fraction']:.2f} % measured, no closed form.", section.finding)
        steps = [(event["ts"], event["ts"] + event["dur"]) for event in self.json("1f1b.trace.json")["traceEvents"] if event["name"] == "step 1"]
        others = [(event["ts"], event["ts"] + event["dur"]) for event in self.json("gpipe.trace.json")["traceEvents"]
                  if event["name"] == "step 1"]
        self.assertIn(finding[finding.index("A step"):], [
            f"A step of 4 stages takes {chart.time_text(max(end for _, end in spans) - min(begin for begin, _ in spans))}."
            for spans in (steps, others)])
        self.assertEqual([own.title for own in self.sections["Pipeline: bubble and memory"].charts],
                         ["Bubble and memory of trained pipelines", "Timeline of the median of 2 steps"])
        one, four = ([entry for entry in self.entries("tensor.json") if entry["variant"] == "tp" and entry["ranks"] == ranks][0] for ranks in (1, 4))
        seconds = [entry["forward_seconds"] + entry["backward_seconds"] for entry in (one, four)]
        self.check("Tensor and sequence parallelism", 4, f"{seconds[0] / seconds[1]:.1f}", 1, f"{100 * four['exposed_seconds'] / seconds[1]:.0f}")

    def test_the_layouts_of_a_sequence_are_compared_as_simulated(self):
        file = self.json("context.json")
        time = {entry["method"]: entry["attention_seconds"] for entry in file["benchmarks"] if (entry["ranks"], entry["length"]) == (4, 4096)}
        crossovers = [entry for entry in file["context_crossovers"] if (entry["quantity"], entry["over"]) == ("bytes", "ranks")]
        ratio = time["ring-contiguous"] / time["ring-zig-zag"]
        self.check("Context parallelism", 4, f"{ratio:.4f}", "1.7500", 16, 4, f"{crossovers[-1]['at']:.1f}")
        self.assertLess(ratio, 7 / 4)
        self.assertAlmostEqual(ratio, 7 / 4, delta=4 / 4096)
        titles = [own.title for own in self.sections["Context parallelism"].charts]
        self.assertIn("Who computes what: the causal mask of 32 tokens on 4 ranks", titles)
        self.assertIn("Attention of one layer on every rank", titles)

    def test_the_mesh_splits_what_the_counters_count(self):
        labels = {"tp": ("layers forward", "layers backward", "embedding", "head", "loss"), "dp": ("gradients",),
                  "pp": ("activations", "gradients of activations", "tied embedding")}
        ranks = self.json("3d.json")["ranks"]
        most = {axis: max(sum(rank["sent_bytes"].get(label, 0) for label in own) for rank in ranks) for axis, own in labels.items()}
        # The norm is reduced over tp and pp: each of its messages goes along one of them.
        finding = self.sections["3D parallelism"].finding
        drawn = dict(re.findall(r"([\d.]+ \w+) along (\w+)", finding))
        drawn = {axis: text for text, axis in drawn.items()}
        for axis, count in most.items():
            self.assertIn(drawn[axis], [chart.bytes_text(count + norm) for norm in (0, 8, 16)])

    def test_memory_and_correctness(self):
        runs = self.runs()
        peaks = [max(rank["peak_bytes"]["total"] for rank in run["ranks"]) for run in runs.values()]
        for text in map(chart.bytes_text, (min(peaks), max(peaks))):
            self.assertIn(f"{text} (", self.sections["Memory"].finding)
        losses = {name: [step["loss"] for step in run["steps"]] for name, run in runs.items()}
        reference = losses.pop("serial")
        worst = max(abs(a - b) / b for own in losses.values() for a, b in zip(own, reference))
        self.check("Correctness", f"{reference[0]:.3f}", f"{reference[-1]:.3f}", 6, f"{worst:.1e}")

    def test_runs_that_only_check_values_are_in_no_plot(self):
        for own in self.sections.values():
            for drawn in own.charts:
                self.assertNotIn("f64", drawn.alt)

    def test_columns_of_measures_stand_to_the_right(self):
        said = page.table(("name", "ranks", "sent", "bubble"), [("3d 8 ranks", 8, "2.8 MiB", "-"), ("serial", 1, "0 B", "1 %")])
        self.assertEqual(re.findall(r"<th scope=\"col\"( class=\"word\")?>(\w+)", said), [(' class="word"', "name"), ("", "ranks"), ("", "sent"), ("", "bubble")])
        self.assertEqual(re.findall(r"<td>(.*?)</td>", said), ["8", "2.8 MiB", "-", "1", "0 B", "1 %"])
        self.assertEqual(page.table(("", ""), [("host", "vm"), ("cores", "2 cores")]).count('class="word"'), 6)

    def test_no_line_ends_within_a_flag(self):
        own = page.Section("Title", "Finding.", command="lockstep bench cp --kv-heads 4 -n 1", source="plots/page.py")
        self.assertIn("<code>lockstep bench cp <span>--kv-heads</span> 4 <span>-n</span> 1</code> &middot; <code>plots/page.py</code>", page.section(own))

    def test_the_clock_and_its_links_are_said(self):
        self.assertIn("as if it had a core to itself; links: 4 µs latency, 12.5 GB/s", self.sections["Verdict"].body)

    def test_the_page_follows_the_readers_colours_and_holds_the_explorer(self):
        self.assertIn("prefers-color-scheme: dark", self.text)
        self.assertIn('<iframe title="Explorer of pipeline schedules"', self.text)
        drawn = "".join(re.findall(r"<svg role.*?</svg>", self.text, re.DOTALL))
        for ink in (chart.INK, chart.SOFT, chart.GRID, chart.PAPER):
            self.assertNotIn(ink, drawn)

    def test_work_has_one_colour_everywhere(self):
        self.assertEqual(schedule.PASSES["F"][1], timeline.CATEGORIES["forward"])
        self.assertEqual(schedule.PASSES["B"][1], timeline.CATEGORIES["backward"])
        self.assertEqual(schedule.COLLECTIVES["REDUCE_GRAD"][1], timeline.CATEGORIES["communication"])
        page = (SOURCE / "plots" / "explorer.html").read_text()
        for words, kind in (("forward pass", "F"), ("backward pass", "B"), ("input gradient", "I"), ("weight gradient", "W")):
            self.assertIn(f'{{words: "{words}", colour: "{schedule.PASSES[kind][1]}"}}', page)
        self.assertEqual(len(set(chart.colours(31))), 31)

    def test_a_slow_rank_is_named_with_its_host_and_share(self):
        """In virtual time: the times are given. Old files, which hold no times of ranks, have no such section."""
        def finding(name, *words):
            file = self.folder / f"{name}.json"
            subprocess.run([PROGRAM, *words, "--clock", "unit", "--json", file], check=True, capture_output=True, timeout=100)
            return file, {own.title: own for own in report.sections(results.read([file]))}.get("Slow ranks")

        train = ["train", "ddp", "--ranks", "4", "--model", GOLDEN / "config.json", "--data", GOLDEN / "tokens.bin", "--global-batch", "4",
                 "--steps", "3", "--compute-time", "0.1", "--link", "alpha=1us,beta=10GB/s"]
        file, healthy = finding("healthy", *train)
        self.assertIsNone(healthy)
        data = json.loads(file.read_text())
        self.assertEqual(data["slow_ranks"], {"compared": 4, "ranks": [], "explained_share": 0, "is_cause": False})
        for rank in data["ranks"]:
            self.assertAlmostEqual(rank["own"]["seconds"], 0.1, 6)
            self.assertEqual(rank["host"], data["environment"]["host"])
        file, slow = finding("slow", *train, "--slow-rank", "2:3")
        data = json.loads(file.read_text())
        share = data["slow_ranks"]["explained_share"]
        self.assertGreater(share, 0.8)
        self.assertIn(f"rank 2 (host {data['environment']['host']}, device host) takes 3.00 times as long for its own work as the median of 4 "
                      f"ranks, which explains {100 * share:.0f} % of all waiting: the cause.", slow.finding)
        self.assertFalse(slow.right)
        waits = [rank["waited_for"][0]["rank"] for rank in data["ranks"] if rank["rank"] == 3]
        self.assertEqual(waits, [2], "rank 3 waits for its left neighbour on the ring")
        old = self.folder / "old.json"
        for rank in data["ranks"]:
            for key in ("own", "host", "device", "waited_for"):
                del rank[key]
        del data["slow_ranks"]
        old.write_text(json.dumps(data))
        self.assertNotIn("Slow ranks", [own.title for own in report.sections(results.read([old]))])
        self.assertEqual(subprocess.run([PROGRAM, "compare", old, file], capture_output=True, timeout=60).returncode, 0)

    def test_a_page_of_one_kind_of_result_has_only_its_sections(self):
        only = results.read([self.folder / "tensor.json"])
        self.assertEqual([own.title for own in report.sections(only)], ["Tensor and sequence parallelism"])
        self.assertIn("Nothing here was checked", report.text_of(only, "Report"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
