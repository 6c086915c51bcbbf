"""Plots show the measured numbers, the page is self-contained, and bad files are refused.

python3 plots_test.py PROGRAM SOURCE_FOLDER
"""

import copy
import html.parser
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

from plots_setting import PROGRAM, SOURCE  # first: it adds the plots to the path

import bandwidth
import experts
import loss
import memory
import optimizers
import report
import results
import speed
import text_picture
import timeline
import traffic
from chart import new_figure

GOLDEN = SOURCE / "tests" / "golden" / "tiny"
TRAIN = ["--model", GOLDEN / "config.json", "--data", GOLDEN / "tokens.bin", "--global-batch", "4", "--steps", "4",
         "--validation-fraction", "0.2"]


class Page(html.parser.HTMLParser):
    """Collects the external resources, pictures and tables of a page."""

    def __init__(self, text):
        super().__init__()
        self.requests, self.alts, self.figures, self.tables_in_figures, self.cells = [], [], 0, 0, []
        self.open_tags = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        for name in ("src", "href", "srcset", "data", "action"):
            if name in attributes and not attributes[name].startswith(("data:", "#")):
                self.requests.append(attributes[name])
        self.open_tags += [] if tag in ("meta", "img", "link") else [tag]
        self.alts += [attributes["aria-label"]] if attributes.get("role") == "img" else []
        self.figures += tag == "figure"
        self.tables_in_figures += tag == "table" and "figure" in self.open_tags

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        self.open_tags.pop()

    def handle_endtag(self, tag):
        assert self.open_tags.pop() == tag, f"</{tag}> closes another tag"

    def handle_data(self, text):
        if self.open_tags[-1:] == ["td"]:
            self.cells.append(text)


class Plots(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.run_program("train", "serial", *TRAIN, "--json", "serial.json")
        cls.run_program("train", "ddp", "--ranks", "2", *TRAIN, "--json", "ddp.json", "--trace", "trace.json")
        cls.run_program("bench", "all_reduce", "-b", "4", "-e", "64K", "-f", "16", "-n", "4", "--json", "bench.json")
        cls.files = [cls.folder / name for name in ("serial.json", "ddp.json", "trace.json", "bench.json")]
        cls.results = results.read(cls.files)

    @classmethod
    def run_program(cls, *words, status=0):
        done = subprocess.run([PROGRAM, *words], cwd=cls.folder, capture_output=True, text=True, timeout=200)
        assert done.returncode == status, f"{words}: status {done.returncode}\n{done.stdout}{done.stderr}"
        return done

    def test_loss_is_drawn_as_measured(self):
        (chart,) = loss.charts(self.results)
        losses, differences = chart.figure.axes
        drawn = {line.get_label(): list(line.get_ydata()) for line in losses.lines}
        self.assertEqual(drawn["serial"], self.results.trainings[0].steps("loss"))
        self.assertEqual(drawn["ddp 2 ranks"], self.results.trainings[1].steps("loss"))
        self.assertEqual(len(differences.lines), 1)

    def test_runs_of_other_trainings_are_not_compared(self):
        other = copy.deepcopy(self.results)
        other.trainings[1].data["config"]["lr"] *= 2
        charts = loss.charts(other)
        self.assertEqual([len(chart.rows) for chart in charts], [1, 1])
        self.assertEqual(charts[1].rows[0][-1], "-")

    def test_the_largest_difference_is_found(self):
        changed = copy.deepcopy(self.results)
        changed.trainings[1].data["steps"][2]["loss"] = 1.25 * changed.trainings[0].data["steps"][2]["loss"]
        (chart,) = loss.charts(changed)
        self.assertEqual(chart.rows[1][-1], "2.5e-01")
        self.assertIn("2.5e-01", chart.alt)

    def test_experts_are_drawn_as_counted(self):
        self.assertEqual(experts.charts(self.results), [])
        changed = copy.deepcopy(self.results)
        for step in changed.trainings[1].data["steps"]:
            step.update(aux_loss=2.5, tokens_of_experts=[[4, 4, 4, 4], [1, 2, 3, 10]])
        changed.trainings[1].data["steps"][0]["tokens_of_experts"] = [[0, 0, 0, 16], [4, 4, 4, 4]]
        over_steps, of_last_step, all_loads = experts.charts(changed)
        (line,) = over_steps.figure.axes[0].lines
        self.assertEqual(list(line.get_ydata()), [4, 2.5, 2.5, 2.5])
        self.assertEqual(over_steps.rows[0][-2], "")
        changed.trainings[1].data["steps"][-1]["router_entropy"] = 1.25
        self.assertEqual(experts.charts(changed)[0].rows[0][-2], "1.250")
        self.assertEqual([text.get_text() for text in of_last_step.figure.axes[0].texts], "4 4 4 4 1 2 3 10".split())
        self.assertEqual(of_last_step.rows[1], ("ddp 2 ranks", 1, "1 2 3 10"))
        # 5, 6, 7 and 14 of 32 tokens; in the first step 4, 4, 4 and 20.
        cells = all_loads.figure.axes[0].images[0].get_array().tolist()
        self.assertEqual(cells, [[0.5, 0.625, 0.625, 0.625], [0.5, 0.75, 0.75, 0.75], [0.5, 0.875, 0.875, 0.875], [2.5, 1.75, 1.75, 1.75]])
        self.assertEqual(all_loads.rows[3], ("ddp 2 ranks", 3, "2.50", "1.75"))
        self.assertIn("ddp 2 ranks, up to 2.50 at first, 1.75 at the end", all_loads.alt)

    def test_speed_is_the_median_steps(self):
        changed = copy.deepcopy(self.results)
        for run, speeds in zip(changed.trainings, ([1, 100, 100, 100], [2, 150, 150, 150])):
            for step, tokens in zip(run.data["steps"], speeds):
                step["tokens_per_second"] = tokens
        (chart,) = speed.charts(changed)
        self.assertEqual([bar.get_width() for bar in chart.figure.axes[0].patches], [100, 150])
        self.assertEqual(chart.rows[1][-1], "1.50")

    def test_traffic_is_drawn_with_its_closed_form(self):
        (chart,) = traffic.charts(self.results)
        lines = [line for line in self.results.trainings[1].data["theory"] if line["quantity"] == "sent_bytes"]
        axes = chart.figure.axes[0]
        self.assertEqual([bar.get_width() for bar in axes.patches], [line["measured"] for line in lines])
        self.assertEqual(list(axes.lines[0].get_xdata()), [line["expected"] for line in lines])
        self.assertIn("all are equal", chart.alt)

    def test_a_wrong_closed_form_is_seen(self):
        changed = copy.deepcopy(self.results)
        changed.trainings[1].data["theory"][0]["measured"] += 4
        self.assertIn("1 differ", traffic.charts(changed)[0].alt)
        self.assertEqual(traffic.charts(changed)[0].rows[0][-1], "4")
        self.assertIn('class="finding wrong"', report.text_of(changed, "Report"))
        self.assertNotIn('class="finding wrong"', report.text_of(self.results, "Report"))

    def test_memory_is_stacked_by_use(self):
        (chart,) = memory.charts(self.results)
        peaks = self.results.trainings[0].data["ranks"][0]["peak_bytes"]
        bars = [container.patches[0] for container in chart.figure.axes[0].containers]
        self.assertEqual([bar.get_width() for bar in bars], [peaks[use] for use in memory.USES])
        self.assertEqual(bars[3].get_x(), peaks["parameters"] + peaks["gradients"] + peaks["optimizer"])

    def test_optimizers_are_compared_and_are_not_one_training(self):
        kinds = {"adamw": "adamw", "sgd": "sgd", "muon": "muon", "galore": "galore, rank 3, full"}
        for kind in kinds:
            own = ["--galore-rank", "3", "--galore-projection", "full"] if kind == "galore" else []
            self.run_program("train", "serial", *TRAIN, "--optimizer", kind, *own, "--json", f"{kind}.json")
        read = results.read([self.folder / f"{kind}.json" for kind in kinds])
        (chart,) = optimizers.charts(read)
        losses, memories = chart.figure.axes
        drawn = {line.get_label(): list(line.get_ydata()) for line in losses.lines}
        for run, name in zip(read.trainings, kinds.values()):
            self.assertEqual(drawn[name], run.steps("loss"))
        self.assertEqual([label.get_text() for label in memories.get_yticklabels()], list(kinds.values()))
        for use, bars in zip(optimizers.OF_OPTIMIZERS, memories.containers):
            self.assertEqual([bar.get_width() for bar in bars], [run.data["ranks"][0]["peak_bytes"][use] for run in read.trainings])
        self.assertEqual([len(one.rows) for one in loss.charts(read)], [1] * len(kinds))
        (section,) = [own for own in report.sections(read) if own.title == "Optimizers"]
        self.assertEqual((section.charts[0].title, section.finding), (chart.title, chart.alt))
        # One optimizer is no comparison.
        self.assertEqual(optimizers.charts(self.results), [])

    def test_bandwidth_is_drawn_as_measured(self):
        (chart,) = bandwidth.charts(self.results)
        times, speeds = chart.figure.axes
        points = [point for point in self.results.benchmarks[0].points() if point.in_place]
        self.assertEqual(list(times.lines[0].get_ydata()), [point.values["p50_us"] for point in points])
        self.assertEqual(list(speeds.lines[0].get_xdata()), [4, 64, 1024, 16384])
        self.assertEqual(speeds.lines[1].get_ydata()[0], self.results.benchmarks[0].memory_bandwidth / 1e9)

    def test_timeline_shows_every_stream_of_the_typical_step(self):
        (chart,) = timeline.charts(self.results)
        self.assertEqual(chart.title, "Timeline of the median of 4 steps")
        self.assertEqual([label.get_text() for label in chart.figure.axes[0].get_yticklabels()],
                         [f"rank {rank} {stream}" for rank in (0, 1) for stream in ("compute", "communication")])

    def test_a_disturbed_step_is_not_drawn(self):
        def step(number, rank, begin, duration):
            return {"ph": "X", "cat": "step", "name": f"step {number}", "pid": rank, "tid": 0, "ts": begin, "dur": duration}

        trace = results.Trace(pathlib.Path("steps.json"), {"traceEvents": [
            step(0, 0, 0, 700), step(0, 1, 10, 790), step(1, 0, 1000, 500), step(1, 1, 1000, 480), step(2, 0, 2000, 510), step(3, 0, 3000, 2000),
            step(3, 1, 3000, 300), step(4, 0, 6000, 490)]})
        self.assertEqual(trace.steps()["step 0"], (0, 800))
        self.assertEqual(trace.typical_step(), "step 2")  # of 800, 500, 510, 2000 and 490
        even = results.Trace(trace.path, {"traceEvents": [step(0, 0, 0, 9), step(1, 0, 10, 9)]})
        self.assertEqual(even.typical_step(), "step 1")
        self.assertIsNone(results.Trace(trace.path, {"traceEvents": []}).typical_step())

    def test_traces_are_named_by_what_differs(self):
        def named(*configs):
            traces = [results.Trace(pathlib.Path(f"{'abc'[i]}.trace.json"), {"traceEvents": [], **({"otherData": {"config": config}} if config else {})})
                      for i, config in enumerate(configs)]
            return results.Results(traces=traces).trace_names()

        fsdp = {"technique": "fsdp", "ranks": 4, "prefetch": "none", "forward_prefetch": False}
        self.assertEqual(named(fsdp, {**fsdp, "forward_prefetch": True}, {**fsdp, "prefetch": "backward-post"}),
                         ["fsdp, prefetch none, forward prefetch off", "fsdp, prefetch none, forward prefetch on",
                          "fsdp, prefetch backward-post, forward prefetch off"])
        self.assertEqual(named(fsdp, {**fsdp, "technique": "ddp"}), ["fsdp", "ddp"])
        self.assertEqual(named(fsdp, fsdp), ["fsdp (a)", "fsdp (b)"])
        self.assertEqual(named(fsdp, None), ["a", "b"])  # a trace of an older program

    def test_a_picture_as_text(self):
        figure = new_figure()
        axes = figure.subplots()
        axes.plot([0, 10], [0, 5], color="#0072b2", marker="", label="rises")
        axes.set_xlim(0, 10)
        axes.set_ylim(0, 5)
        axes.legend()
        lines = text_picture.text_picture(figure, 60).splitlines()
        self.assertLessEqual(max(map(len, lines)), 60)
        self.assertEqual(lines[-1], "* rises")
        drawn = [line.index("*") for line in lines if "|" in line and "*" in line]
        self.assertEqual(len(drawn), text_picture.ROWS)
        self.assertEqual(drawn, sorted(drawn, reverse=True))  # from the lower left to the upper right
        self.run_program("plot", "loss", "serial.json", "ddp.json", "--output", "loss.txt")
        self.assertIn("* serial", (self.folder / "loss.txt").read_text())

    def test_a_matrix_as_text(self):
        figure = new_figure()
        axes = figure.subplots()
        axes.imshow([[0, 1, 2], [3, float("nan"), 8]])
        axes.set_xticks([0, 1, 2])
        axes.set_yticks([0, 1], ["a", "b"])
        self.assertEqual(text_picture.text_picture(figure, 30).splitlines(),
                         [" a |░░░░░░░ ░░░░░░░ ▒▒▒▒▒▒▒", " b |▒▒▒▒▒▒▒         ███████", "   +------------------------",
                          "    0       1       2", "░ 0 to █ 8"])
        axes.text(0, 0, "zero\nof 8")
        axes.text(1, 1, "none")
        self.assertEqual(text_picture.text_picture(figure, 30).splitlines()[:2], [" a |zero", " b |        none"])
        axes.set_ylim(-0.5, 1.5)  # upwards
        self.assertEqual(text_picture.text_picture(figure, 30).splitlines()[:2], [" b |        none", " a |zero"])
        self.assertEqual(text_picture.text_picture(figure, 6), "")  # too narrow

    def test_the_parts_of_a_split_backward_pass_are_apart(self):
        kinds = {name: timeline._kind({"name": name, "cat": "backward"}) for name in ("0B1", "0I1", "12W30", "optimizer")}
        self.assertEqual(kinds, {"0B1": "backward", "0I1": "input gradient", "12W30": "weight gradient", "optimizer": "backward"})

    def test_a_block_of_a_timeline_says_its_micro_batch_or_its_bytes(self):
        (chart,) = timeline.charts(self.results)
        written = {text.get_text() for text in chart.figure.axes[0].texts}
        self.assertIn("0", written)

    def test_hidden_communication_overlaps_with_no_wait(self):
        def span(category, begin, duration, rank=0, stream=0):
            return {"pid": rank, "tid": stream, "cat": category, "ts": begin, "dur": duration}

        spans = [span("compute", 0, 6), span("communication", 2, 5), span("communication", 7, 3), span("wait", 6, 4),
                 span("communication", 0, 8, rank=1)]
        self.assertAlmostEqual(timeline._hidden(spans, 0), 1 - 4 / 8)
        self.assertEqual(timeline._hidden(spans, 1), 1)
        self.assertIsNone(timeline._hidden(spans, 2))
        # A collective within an exchange is not counted twice.
        spans += [span("exchange", 0, 8, 2, 60), span("communication", 1, 6, 2, 60), span("wait", 6, 2, 2)]
        self.assertAlmostEqual(timeline._hidden(spans, 2), 1 - 2 / 8)

    def test_the_page_is_self_contained_and_complete(self):
        done = self.run_program("report", *self.files, "--output", "report.html")
        self.assertIn("report.html", done.stdout)
        page = Page((self.folder / "report.html").read_text())
        self.assertEqual(page.requests, [])
        self.assertEqual(page.open_tags, [])
        self.assertGreaterEqual(len(page.alts), 9)
        self.assertTrue(all(len(alt) > 40 for alt in page.alts), page.alts)
        self.assertEqual((page.figures, page.tables_in_figures), (len(page.alts), len(page.alts)))
        for line in self.results.trainings[1].data["theory"]:
            self.assertIn(f"{line['expected']:.0f}", page.cells)
        again = self.run_program("report", *self.files, "--output", "again.html")
        self.assertEqual(again.returncode, 0)
        self.assertEqual((self.folder / "report.html").read_bytes(), (self.folder / "again.html").read_bytes())

    def test_each_kind_of_plot_is_a_file(self):
        for kind, begins in (("loss.svg", b"<?xml"), ("traffic.png", b"\x89PNG"), ("memory.pdf", b"%PDF")):
            self.run_program("plot", kind.split(".")[0], *self.files, "-o", kind)
            self.assertTrue((self.folder / kind).read_bytes().startswith(begins))

    def test_bad_input_is_refused_by_name(self):
        good = (self.folder / "ddp.json").read_text()
        bad = {"empty.json": "", "cut.json": good[:len(good) // 2], "list.json": "[1]", "other.json": '{"a": 1}',
               "newer.json": good.replace("lockstep.train/1", "lockstep.train/9"),
               "hollow.json": '{"schema": "lockstep.train/1", "config": {}}',
               "no_steps.json": json.dumps({**json.loads(good), "steps": []})}
        for name, text in bad.items():
            (self.folder / name).write_text(text)
        for name in (*bad, "missing.json"):
            done = self.run_program("report", self.files[0], name, "--output", "bad.html", status=2)
            self.assertIn(name, done.stderr)
            self.assertNotIn("Traceback", done.stderr)
        for words in (["plot", "bandwidth", "ddp.json"], ["plot", "magic", "ddp.json"], ["plot", "loss", "ddp.json", "-o", "x.gif"],
                      ["report"], ["report", "ddp.json", "--output", "no/such/folder/report.html"]):
            done = self.run_program(*words, status=2)
            self.assertNotIn("Traceback", done.stderr)
        self.assertFalse((self.folder / "bad.html").exists())
        self.assertEqual([path.name for path in self.folder.iterdir() if ".part" in path.name], [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
