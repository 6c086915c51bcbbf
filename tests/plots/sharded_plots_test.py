"""Plots of sharded data parallelism: the drawn numbers equal the counted, simulated and traced ones.

python3 sharded_plots_test.py PROGRAM SOURCE_FOLDER
"""

import copy
import html
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

from plots_setting import PROGRAM, SOURCE

from matplotlib.backends.backend_agg import FigureCanvasAgg

import prefetch
import report
import results
import sharded

COUNT = ["bench", "sharded", "--device", "none", "--dtype", "bf16", "--ranks", "1,4,64", "--sequence-length", "16"]
SIMULATE = ["bench", "sharded", "--simulate", "--dtype", "bf16", "--ranks", "2,4", "--sequence-length", "16"]
PREFETCH = {"none": ["--prefetch", "none"], "post": ["--prefetch", "backward-post"], "pre": [], "forward": ["--forward-prefetch"]}
USES = ("parameters", "gradients", "optimizer")


def run_program(folder, *words, status=0):
    done = subprocess.run([PROGRAM, *words], cwd=folder, capture_output=True, text=True, timeout=200)
    assert done.returncode == status, f"{words}: status {done.returncode}\n{done.stdout}{done.stderr}"
    return done


def drawn(axes):
    """The points of every line, by label."""
    return {line.get_label(): list(zip(line.get_xdata(), line.get_ydata())) for line in axes.lines}


class Sharded(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        run_program(cls.folder, *COUNT, "--json", "count.json")
        run_program(cls.folder, *SIMULATE, "--json", "speeds.json")
        cls.counted, cls.simulated = (json.loads((cls.folder / name).read_text()) for name in ("count.json", "speeds.json"))
        cls.memory, cls.states, cls.traffic = sharded.charts(results.read([cls.folder / "count.json"]))
        cls.times = sharded.charts(results.read([cls.folder / "speeds.json"]))[-1]

    def entry(self, strategy, ranks, **wanted):
        (found,) = [entry for entry in (self.simulated if wanted else self.counted)["benchmarks"]
                    if (entry["strategy"], entry["ranks"]) == (strategy, ranks) and
                    all(entry[key] == value for key, value in wanted.items())]
        return found

    def charts_of(self, data, **changes):
        path = self.folder / f"{self._testMethodName}.json"
        path.write_text(json.dumps({**data, **changes}))
        return sharded.charts(results.read([path]))

    def test_memory_is_kept_and_peak_bytes_with_zeros_formula(self):
        titles = [axes.get_title(loc="left").replace("\n", " ") for axes in self.memory.figure.axes]
        self.assertEqual(titles, ["ddp", "zero-1", "zero-2", "zero-3, fsdp-backward-pre, fsdp-forward", "fsdp-none, fsdp-backward-post"])
        for axes, strategy in zip(self.memory.figure.axes, ("ddp", "zero-1", "zero-2", "fsdp-forward", "fsdp-none")):
            entries = [self.entry(strategy, ranks) for ranks in (1, 4, 64)]
            bars = dict(zip((container.get_label() for container in axes.containers), axes.containers, strict=True))
            for use in USES:
                for place, entry in enumerate(entries):
                    kept, peak = entry["kept_bytes"][use], entry["peak_bytes"][use]
                    self.assertEqual(bars[use][place].get_height(), kept)
                    self.assertEqual(bars[f"{use} at peak"][place].get_height(), peak - kept)
            for place, (entry, top) in enumerate(zip(entries, bars["optimizer"])):
                x, formula = drawn(axes)["formula"][place]
                self.assertEqual((x, formula), (place, entry["paper_bytes"]))
                # The solid bars end at the formula, up to uneven shards.
                self.assertAlmostEqual(top.get_y() + top.get_height(), formula, delta=9 * 16)
            self.assertEqual([label.get_text() for label in axes.get_xticklabels()], ["1", "4", "64"])

    def test_states_are_those_of_the_papers_figure(self):
        config = SOURCE / "bench" / "techniques" / "7.5B.json"
        run_program(self.folder, "bench", "sharded", "--device", "none", "--model", config, "--dtype", "bf16", "--ranks", "64", "--strategy",
                    "ddp,zero-1,zero-2,zero-3", "--json", "paper.json")
        _, states, _ = sharded.charts(results.read([self.folder / "paper.json"]))
        self.assertEqual(states.title, "States by ZeRO's stage on 64 ranks: 7.5B, bf16, 1 sequence a rank")
        self.assertEqual([text.get_text() for text in states.figure.axes[0].texts], ["120 GB", "31.4 GB", "16.6 GB", "1.9 GB"])
        self.assertIn("ddp 120 GB, zero-1 31.4 GB, zero-2 16.6 GB, zero-3 1.9 GB", states.alt)

    def test_states_are_drawn_as_counted(self):
        (axes,) = self.states.figure.axes
        for container, use in zip(axes.containers, USES, strict=True):
            for bar, strategy in zip(container, ("ddp", "zero-1", "zero-2", "zero-3"), strict=True):
                self.assertAlmostEqual(1e9 * bar.get_width(), self.entry(strategy, 64)["kept_bytes"][use], places=3)
        self.assertEqual([x for x, _ in drawn(axes)["ZeRO's formula"]],
                         [self.entry(strategy, 64)["paper_bytes"] / 1e9 for strategy in ("ddp", "zero-1", "zero-2", "zero-3")])

    def test_traffic_is_counted_bytes_by_label_with_their_closed_form(self):
        first, second = self.traffic.figure.axes
        self.assertEqual([axes.get_title(loc="left") for axes in (first, second)], ["4 ranks", "64 ranks"])
        bars = {container.get_label(): container for container in first.containers}
        names = ("ddp", "zero-1", "fsdp-none", "tp")
        for label in ("gradients", "parameters", "norm", "layers forward"):
            self.assertEqual([bar.get_width() for bar in bars[label]], [self.entry(name, 4)["sent_bytes"].get(label, 0) for name in names])
        self.assertEqual([x for x, _ in drawn(first)["closed form"]],
                         [sum(self.entry(name, 4)["expected_sent_bytes"].values()) for name in names])

    def test_a_wrong_closed_form_is_seen(self):
        changed = copy.deepcopy(self.counted)
        entry = next(entry for entry in changed["benchmarks"] if (entry["strategy"], entry["ranks"]) == ("ddp", 4))
        entry["expected_sent_bytes"]["gradients"] *= 2
        traffic = self.charts_of(changed)[2]
        self.assertEqual(drawn(traffic.figure.axes[0])["closed form"][0][0], 2 * entry["sent_bytes"]["gradients"])
        entry["paper_bytes"] *= 3
        memory = self.charts_of(changed)[0]
        self.assertEqual(drawn(memory.figure.axes[0])["formula"][1][1], entry["paper_bytes"])

    def test_times_are_drawn_over_the_speed_of_links(self):
        for axes, ratios, ranks in zip(self.times.figure.axes[:2], self.times.figure.axes[2:], (2, 4)):
            self.assertEqual(axes.get_title(loc="left"), f"{ranks} ranks")
            lines, relative = drawn(axes), drawn(ratios)
            for strategy in ("ddp", "fsdp-none", "fsdp-forward", "tp"):
                (name,) = [name for name in lines if strategy in name.split(", ")]
                for (x, time), (_, ratio) in zip(lines[name], relative[name], strict=True):
                    entry, base = (self.entry(other, ranks, link=f"alpha=5us,beta={x / 1e9:g}GB/s") for other in (strategy, "ddp"))
                    self.assertEqual(x, entry["link_bytes_per_s"])
                    self.assertAlmostEqual(time, 1e6 * entry["step_seconds"])
                    self.assertAlmostEqual(ratio, entry["step_seconds"] / base["step_seconds"])

    def test_rings_are_crossovers_on_the_lines(self):
        for ratios, ranks in zip(self.times.figure.axes[2:], (2, 4)):
            crossovers = [crossover for crossover in self.simulated["crossovers"] if crossover["ranks"] == ranks]
            rings = [line for line in ratios.lines if " crosses " in line.get_label()]
            self.assertEqual([line.get_label() for line in rings], [f"{c['strategy']} crosses {c['reference']}" for c in crossovers])
            for ring, crossover in zip(rings, crossovers):
                (x,), (y,) = ring.get_data()
                self.assertEqual(x, crossover["bytes_per_s"])
                self.assertIn(f"{crossover['strategy']} is faster than {crossover['reference']}", self.times.alt)
                if crossover["reference"] == "ddp":
                    self.assertAlmostEqual(y, 1)
        self.assertTrue(any(crossover["reference"] == "ddp" for crossover in self.simulated["crossovers"]))

    def test_one_link_gives_bars(self):
        some = [entry for entry in self.simulated["benchmarks"] if entry["link"] == "alpha=5us,beta=5GB/s"]
        chart = self.charts_of(self.simulated, benchmarks=some, crossovers=[])[-1]
        self.assertEqual([bar.get_width() for bar in chart.figure.axes[0].patches], [1e3 * entry["step_seconds"] for entry in some])

    def test_rows_are_the_numbers(self):
        for row in self.memory.rows:
            values = dict(zip(self.memory.columns, row, strict=True))
            entry = self.entry(values["strategy"].split(",")[0], values["ranks"])
            for use in USES:
                self.assertEqual((values[f"{use} kept"], values[f"{use} at peak"]), (entry["kept_bytes"][use], entry["peak_bytes"][use]))
        for row in self.traffic.rows:
            values = dict(zip(self.traffic.columns, row, strict=True))
            self.assertEqual(values["total"], sum(self.entry(values["strategy"].split(",")[0], values["ranks"])["sent_bytes"].values()))
        self.assertEqual(len(self.times.rows), len(self.simulated["benchmarks"]))

    def test_nothing_overlaps(self):
        for chart in (self.memory, self.traffic, self.times):
            figure = chart.figure
            canvas = FigureCanvasAgg(figure)
            canvas.draw()
            boxes = [axes.get_tightbbox(canvas.get_renderer()) for axes in figure.axes]
            boxes += [part.legends[0].get_window_extent() for part in figure.subfigs if part.legends]
            for i, box in enumerate(boxes):
                self.assertTrue(figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1, (chart.title, box))
                for other in boxes[i + 1:]:
                    self.assertFalse(box.overlaps(other), (chart.title, box, other))

    def test_the_program_draws_it_and_reports_it(self):
        done = run_program(self.folder, "plot", "sharded", "count.json", "-o", "count.png")
        self.assertIn("count_3.png: Bytes sent in a step: 4 ranks: ddp ", done.stdout)
        self.assertTrue((self.folder / "count_2.png").read_bytes().startswith(b"\x89PNG"))
        run_program(self.folder, *COUNT, "--plot", "direct.svg")
        self.assertTrue((self.folder / "direct.svg").read_bytes().startswith(b"<?xml"))
        page = report.text_of(results.read([self.folder / "count.json"]), "title")
        self.assertIn("<h2>Sharded data parallelism</h2>", page)
        for chart in (self.memory, self.states, self.traffic):
            self.assertIn(f'aria-label="{html.escape(chart.alt)}"', page)

    def test_broken_files_are_refused_by_name(self):
        good = self.simulated["benchmarks"][0]
        bad = {f"no_{key}": {name: value for name, value in good.items() if name != key} for key in (
            "strategy", "link", "ranks", "sent_bytes", "expected_sent_bytes", "peak_bytes", "kept_bytes", "paper_bytes")}
        for number, change in enumerate(({"ranks": 0}, {"strategy": 3}, {"sent_bytes": {"gradients": -1}}, {"peak_bytes": {"total": 1}},
                                         {"step_seconds": 0}, {"link_bytes_per_s": -1}, {"kept_bytes": {"parameters": 1}},
                                         {"kept_bytes": {use: 10 ** 20 for use in USES}}, {"paper_bytes": "many"})):
            bad[f"wrong_{number}"] = {**good, **change}
        for name, entry in bad.items():
            with self.assertRaises(results.BadInput, msg=name):
                self.charts_of(self.simulated, benchmarks=[entry])
        for wrong in ([{}], [{**self.simulated["crossovers"][0], "ranks": "x"}], 5):
            with self.assertRaises(results.BadInput, msg=str(wrong)):
                self.charts_of(self.simulated, crossovers=wrong)
        context = {key: value for key, value in self.simulated["context"].items() if key != "lockstep.model"}
        with self.assertRaises(results.BadInput):
            self.charts_of(self.simulated, context=context)


class PrefetchModes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        for name, words in PREFETCH.items():
            run_program(cls.folder, "train", "fsdp", "--ranks", "2", "--global-batch", "2", "--steps", "2", "--sequence-length", "16", "--clock",
                        "cpu", "--link", "alpha=10us,beta=1GB/s", *words, "--trace", f"{name}.json")
        cls.results = results.read([cls.folder / f"{name}.json" for name in PREFETCH])
        (cls.chart,) = prefetch.charts(cls.results)

    def test_the_peak_of_gathered_blocks_is_that_of_the_mode(self):
        titles = [axes.get_title(loc="left") for axes in self.chart.figure.axes[::2]]
        names = [f"fsdp, prefetch {mode}, forward prefetch {forward}" for mode, forward in (
            ("none", "off"), ("backward-post", "off"), ("backward-pre", "off"), ("backward-pre", "on"))]
        for title, name, most in zip(titles, names, (1, 1, 2, 2), strict=True):
            self.assertRegex(title, rf"^{name}: [\d.]+ ms, at most {most} gathered block{'s' if most > 1 else ''}$")
        self.assertEqual([row[-1] for row in self.chart.rows], [1, 1, 2, 2])
        for axes, most in zip(self.chart.figure.axes[1::2], (1, 1, 2, 2)):
            counts = [count for _, count in drawn(axes)["gathered blocks"]]
            self.assertEqual((max(counts), counts[0], counts[-1]), (most, 0, 0))

    def test_spans_are_those_of_the_trace(self):
        layers = 4  # of the preset nano
        for trace, axes in zip(self.results.traces, self.chart.figure.axes[::2]):
            spans = [event for event in trace.events if event["ph"] == "X" and event["pid"] == 0]
            step = next(span for span in spans if span["name"] == trace.typical_step())
            passes = {span["name"]: span for span in spans if span.get("cat") == "unit" and span["name"][0] in "FB" and
                      step["ts"] <= span["ts"] <= step["ts"] + step["dur"]}
            self.assertEqual(set(passes), {f"{kind}{block}" for kind in "FB" for block in range(layers)})
            for name, collection in zip("FB", axes.collections[:2]):
                boxes = sorted((path.vertices[:, 0].min(), path.vertices[:, 0].max()) for path in collection.get_paths())
                expected = sorted((span["ts"] - step["ts"], span["ts"] + span["dur"] - step["ts"]) for key, span in passes.items()
                                  if key[0] == name)
                for box, wanted in zip(boxes, expected, strict=True):
                    for drawn_at, at in zip(box, wanted):
                        self.assertAlmostEqual(1e3 * drawn_at, at, delta=0.01)

    def test_gathers_and_reductions_are_counted(self):
        # Forward and backward gather every block, and the root is gathered once; the modes change the order only.
        for row in self.chart.rows:
            self.assertEqual(row[3:5], (4 + 4 + 1, 4 + 1))

    def test_events_follow_the_order_of_the_mode(self):
        def order(trace):
            spans = sorted((event for event in trace.events if event["ph"] == "X" and event["pid"] == 0 and event.get("cat") == "unit"),
                           key=lambda event: event["ts"])
            names = [span["name"] for span in spans if span["name"] != "R"]
            return " ".join(names[len(names) // 2:])
        self.assertEqual(order(self.results.traces[0]), (
            "AG_R AG0 F0 free0 AG1 F1 free1 AG2 F2 free2 AG3 F3 free3 "
            "AG3 B3 free3 RS3 AG2 B2 free2 RS2 AG1 B1 free1 RS1 AG0 B0 free0 RS0 RS_R"))
        self.assertIn("AG3 AG2 B3 free3 RS3 AG1 B2", order(self.results.traces[2]))

    def test_traces_without_units_give_no_chart(self):
        run_program(self.folder, "train", "ddp", "--ranks", "2", "--steps", "1", "--global-batch", "2", "--trace", "ddp.json")
        self.assertEqual(prefetch.charts(results.read([self.folder / "ddp.json"])), [])
        self.assertIn("no data for a prefetch plot", run_program(self.folder, "plot", "prefetch", "ddp.json", status=2).stderr)

    def test_the_program_draws_it(self):
        done = run_program(self.folder, "plot", "prefetch", "none.json", "pre.json", "-o", "p.png")
        self.assertIn("p.png: A step of rank 0: fsdp, prefetch none: ", done.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
