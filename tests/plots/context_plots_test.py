"""Plots of context parallelism: the drawn numbers equal the counted, simulated, measured and traced ones.

python3 context_plots_test.py PROGRAM SOURCE_FOLDER
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

import context
import report_models
import report
import results
import ring

GOLDEN = SOURCE / "tests" / "golden" / "tiny"
RUNS = {
    "ranks": ["--simulate", "--ranks", "4,2,8", "--heads", "16", "--kv-heads", "4,16", "--lengths", "64", "--method",
              "ring-contiguous,ring-zig-zag,all-gather,ulysses"],
    "lengths": ["--simulate", "--lengths", "32,128", "--ranks", "2"],
    "links": ["--simulate", "--lengths", "32", "--link", "alpha=1us,beta=1GB/s", "--link", "alpha=1us,beta=100GB/s"],
    "trained": ["--data", GOLDEN / "tokens.bin", "--ranks", "2", "--lengths", "16", "--steps", "2", "--repetitions", "1"],
    "error": ["--error", "--lengths", "64", "--ranks", "1,8"],
}
LAYOUTS = ("contiguous", "zig-zag", "striped")


def run_program(folder, *words, status=0):
    done = subprocess.run([PROGRAM, *words], cwd=folder, capture_output=True, text=True, timeout=200)
    assert done.returncode == status, f"{words}: status {done.returncode}\n{done.stdout}{done.stderr}"
    return done


def drawn(axes):
    """The points of every line, by label."""
    return {line.get_label(): list(zip(line.get_xdata(), line.get_ydata())) for line in axes.lines}


def line_with(lines, method):
    (name,) = [name for name in lines if method in name.split(", ") and not name.endswith("closed form")]
    return lines[name]


class Context(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.data, cls.drawn = {}, {}
        for name, words in RUNS.items():
            run_program(cls.folder, "bench", "cp", *words, "--json", f"{name}.json")
            cls.data[name] = json.loads((cls.folder / f"{name}.json").read_text())
            cls.drawn[name] = context.charts(results.read([cls.folder / f"{name}.json"]))

    def charts(self, name, **changes):
        if not changes:
            return self.drawn[name]
        path = self.folder / f"{self._testMethodName}.json"
        path.write_text(json.dumps({**self.data[name], **changes}))
        return context.charts(results.read([path]))

    def entry(self, run, method, **wanted):
        (found,) = [entry for entry in self.data[run]["benchmarks"] if entry["method"] == method and
                    all(entry[key] == value for key, value in wanted.items())]
        return found

    def test_the_mask_has_a_row_for_each_query_in_its_owners_colour(self):
        chart = self.charts("ranks")[0]
        for axes, bars, mask in zip(chart.figure.axes[:3], chart.figure.axes[3:], self.data["ranks"]["context_masks"], strict=True):
            self.assertEqual(axes.get_title(loc="left"), mask["layout"])
            rows, strip = axes.containers
            colours = [bar.get_facecolor() for bar in bars.containers[0]]
            self.assertEqual([bar.get_width() for bar in rows], list(range(1, 33)))
            for owner, row, key in zip(mask["owners"], rows, strip, strict=True):
                self.assertEqual((row.get_facecolor(), key.get_facecolor()), (colours[owner], colours[owner]))
            self.assertEqual([bar.get_width() for bar in bars.containers[0]], mask["pairs"])
            # The widths of a rank's rows add up to its pairs.
            for rank, pairs in enumerate(mask["pairs"]):
                self.assertEqual(sum(bar.get_width() for bar, owner in zip(rows, mask["owners"]) if owner == rank), pairs)
        self.assertEqual([mask["layout"] for mask in self.data["ranks"]["context_masks"]], list(LAYOUTS))
        (limit,) = [limit for limit in self.data["ranks"]["context_limits"] if (limit["ranks"], limit["kv_heads"]) == (4, 4)]
        self.assertIn(f"takes {limit['measured']:.4f} times as long as of zig-zag ones; the limit (2c-1)/c is 1.7500", chart.alt)

    def test_bytes_are_drawn_over_ranks_with_their_closed_form_and_the_crossover(self):
        chart = self.charts("ranks")[1]
        for axes, kv_heads in zip(chart.figure.axes, (4, 16), strict=True):
            self.assertEqual(axes.get_title(loc="left"), f"16 query heads, {kv_heads} key/value heads")
            lines = drawn(axes)
            for method in ("ring-zig-zag", "all-gather", "ulysses"):
                entries = [self.entry("ranks", method, ranks=ranks, kv_heads=kv_heads) for ranks in (2, 4, 8)]
                self.assertEqual(line_with(lines, method), [(entry["ranks"], entry["exchanged_bytes"]) for entry in entries])
            expected = [(ranks, self.entry("ranks", "ulysses", ranks=ranks, kv_heads=kv_heads)["expected_exchanged_bytes"])
                        for ranks in (2, 4, 8)]
            self.assertEqual(lines["ulysses: closed form"], expected)
        self.assertEqual(len(chart.rows), 4 * 3 * 2)
        crossings = [c for c in self.data["ranks"]["context_crossovers"] if (c["quantity"], c["over"]) == ("bytes", "ranks")]
        self.assertEqual([crossing["kv_heads"] for crossing in crossings], [4])
        circles = [line for axes in chart.figure.axes for line in axes.lines if line.get_markersize() == 11]
        self.assertEqual([circle.get_xdata()[0] for circle in circles], [crossings[0]["at"]])
        self.assertIn(f"4 key/value heads, Ulysses sends less than a ring above {crossings[0]['at']:.3g} ranks", chart.alt)
        for axes in chart.figure.axes:
            low, high = axes.get_ylim()
            self.assertGreaterEqual(sum(low <= tick <= high for tick in axes.get_yticks()), 2, "no scale to read values by")
            self.assertTrue(all(low < y < high for points in drawn(axes).values() for _, y in points), "a line leaves the panel")

    def test_a_wrong_closed_form_is_seen(self):
        changed = copy.deepcopy(self.data["ranks"]["benchmarks"])
        for entry in changed:
            entry["expected_exchanged_bytes"] *= 2
        chart = self.charts("ranks", benchmarks=changed)[1]
        lines = drawn(chart.figure.axes[0])
        self.assertEqual([2 * sent for _, sent in lines["ulysses"]], [expected for _, expected in lines["ulysses: closed form"]])

    def test_times_are_relative_to_the_zig_zag_ring(self):
        for name, key in (("lengths", "length"), ("links", "link_bytes_per_s"), ("ranks", "ranks")):
            (chart,) = [chart for chart in self.charts(name) if chart.title.startswith("Time of a step:")]
            axes = chart.figure.axes[0]
            entries = [entry for entry in self.data[name]["benchmarks"] if entry["ranks"] > 1 and
                       (name != "ranks" or entry["kv_heads"] == 4)]
            for method in ("ring-contiguous", "ulysses"):
                base = {entry[key]: entry["step_seconds"] for entry in entries if entry["method"] == "ring-zig-zag"}
                expected = sorted((entry[key], entry["step_seconds"] / base[entry[key]]) for entry in entries if entry["method"] == method)
                self.assertEqual(drawn(axes)[method], expected)
            for at in base:
                fastest = min((entry for entry in entries if entry[key] == at), key=lambda entry: entry["step_seconds"])
                self.assertIn(fastest["method"] + " at ", chart.alt)

    def test_one_setting_gives_bars(self):
        bytes_bars, times = self.charts("trained")[1:]
        entries = [entry for entry in self.data["trained"]["benchmarks"] if entry["ranks"] > 1]
        bars = times.figure.axes[0].containers
        self.assertEqual([bar.get_width() for bar in bars[0]], [1e3 * entry["step_seconds"] for entry in entries])
        for bar, entry in zip(bars[1], entries, strict=True):
            self.assertAlmostEqual(bar.get_width(), 1e3 * entry["exposed_seconds"])
        shown = [bar.get_width() for bar in bytes_bars.figure.axes[0].containers[0]]
        self.assertEqual(set(shown), {entry["exchanged_bytes"] for entry in entries})

    def test_memory_is_drawn_over_lengths_with_the_plain_form(self):
        (chart,) = [chart for chart in self.charts("lengths") if chart.title.startswith("Peak memory")]
        above, below = (drawn(axes) for axes in chart.figure.axes)
        one_rank = [self.entry("lengths", "one-rank", length=length) for length in (32, 128)]
        self.assertEqual(above["one rank, plain form"], [
            (entry["length"], entry["peak_bytes"]["activations"] + entry["scores_bytes"]) for entry in one_rank])
        for method in ("ring-striped", "all-gather", "ulysses"):
            entries = [self.entry("lengths", method, length=length) for length in (32, 128)]
            peaks = [[entry[key] for entry in entries] for key in ("peak_bytes", "expected_peak_bytes")]
            for lines, uses in ((above, ("activations", "communication")), (below, ("communication",))):
                measured, expected = ([sum(peak[use] for use in uses) for peak in own] for own in peaks)
                self.assertEqual([count for _, count in line_with(lines, method)], measured)
                (name,) = [name for name in lines if name.endswith(": closed form") and method in name.removesuffix(": closed form").split(", ")]
                self.assertEqual([count for _, count in lines[name]], expected)
                self.assertEqual(measured, expected)

    def test_errors_are_drawn_over_the_ring(self):
        (chart,) = self.charts("error")
        for axes, key in zip(chart.figure.axes, ("output_error", "gradient_error"), strict=True):
            for accumulation in ("f32", "bf16"):
                expected = [(entry["ranks"], entry[key]) for entry in self.data["error"]["benchmarks"] if entry["accumulation"] == accumulation]
                self.assertEqual(drawn(axes)[f"sums in {accumulation}"], expected)
                self.assertTrue(all(at < axes.get_ylim()[1] for _, at in expected))
        self.assertIn("sums in bf16: output ", chart.alt)

    def test_nothing_overlaps(self):
        for name in ("ranks", "lengths"):
            for chart in self.charts(name):
                canvas = FigureCanvasAgg(chart.figure)
                canvas.draw()
                boxes = [axes.get_tightbbox(canvas.get_renderer()) for axes in chart.figure.axes]
                for i, box in enumerate(boxes):
                    self.assertTrue(0 <= box.x0 and box.x1 <= chart.figure.bbox.x1, (name, chart.title, box))
                    for other in boxes[i + 1:]:
                        self.assertFalse(box.overlaps(other), (name, chart.title, box, other))

    def test_the_program_draws_it_and_reports_it(self):
        done = run_program(self.folder, "plot", "context", "ranks.json", "-o", "r.png")
        self.assertIn("r_2.png: Bytes sent to share sequences over ranks.", done.stdout)
        run_program(self.folder, "bench", "cp", *RUNS["error"], "--plot", "direct.svg")
        self.assertTrue((self.folder / "direct.svg").read_bytes().startswith(b"<?xml"))
        page = report.text_of(results.read([self.folder / "ranks.json"]), "title")
        self.assertIn("<h2>Context parallelism</h2>", page)
        for chart in self.charts("ranks")[:2]:
            self.assertIn(f'aria-label="{html.escape(chart.alt)}"', page)

    def test_broken_files_are_refused_by_name(self):
        good = self.data["ranks"]["benchmarks"][0]
        bad = [{name: value for name, value in good.items() if name != key} for key in (
            "method", "link", "heads", "kv_heads", "length", "pairs", "expected_pairs", "exchanged_bytes", "peak_bytes", "step_seconds")]
        bad += [{**good, **change} for change in ({"ranks": 3}, {"method": 3}, {"pairs": [-1] * 4}, {"peak_bytes": {"total": 1}},
                                                  {"step_seconds": 0}, {"link_bytes_per_s": 0}, {"length": 0}, {"pairs": [1]})]
        for entry in bad:
            with self.assertRaises(results.BadInput, msg=str(entry)):
                self.charts("ranks", benchmarks=[entry])
        mask = self.data["ranks"]["context_masks"][0]
        for wrong in ([{}], [{**mask, "pairs": [1]}], [{**mask, "owners": [0, 1]}], [{**mask, "owners": "0011"}], 5):
            with self.assertRaises(results.BadInput, msg=str(wrong)):
                self.charts("ranks", context_masks=wrong)
        for key in ("context_limits", "context_crossovers"):
            with self.assertRaises(results.BadInput):
                self.charts("ranks", **{key: [{}]})


class Ring(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        for layout in ("contiguous", "zig-zag"):
            run_program(cls.folder, "train", "ring-attention", "--ranks", "4", "--layout", layout, "--data", GOLDEN / "tokens.bin", "--model",
                        "small", "--global-batch", "1", "--steps", "2", "--threads", "1", "--clock", "cpu", "--link",
                        "alpha=5us,beta=1GB/s", "--trace", f"{layout}.trace.json")
        cls.traces = results.read([cls.folder / f"{layout}.trace.json" for layout in ("contiguous", "zig-zag")])
        (cls.chart,) = ring.charts(cls.traces)

    def test_every_rank_attends_to_every_block_while_the_next_travels(self):
        rows = {}
        for trace, direction, rank, what, *_ in self.chart.rows:
            rows.setdefault((trace, direction, rank), []).append(what)
        self.assertEqual(len(rows), 2 * 2 * 4)
        for (_, direction, rank), names in rows.items():
            # Its own block first, then those of the ranks before it.
            self.assertEqual([name for name in names if name.startswith("block")], [f"block {(rank - step) % 4}" for step in range(4)])
            self.assertEqual(names.count("keys and values"), 3)
            self.assertEqual(names.count("gradients of keys and values"), 3 if direction == "backward" else 0)

    def test_blocks_are_drawn_when_they_were_computed(self):
        titles = [axes.get_title(loc="left").rsplit(":", 1)[0] for axes in self.chart.figure.axes]
        self.assertEqual(titles, [f"ring-attention, layout {layout}, {direction}" for layout in ("contiguous", "zig-zag") for direction in ("forward", "backward")])
        for axes, title in zip(self.chart.figure.axes, titles):
            trace, direction = title.rsplit(", ", 1)
            boxes = sorted(round(path.vertices[:, 0].max() - path.vertices[:, 0].min(), 3) for collection in axes.collections
                           for path in collection.get_paths())
            expected = sorted(round(float(row[5]), 3) for row in self.chart.rows if row[:2] == (trace, direction))
            self.assertEqual(len(boxes), len(expected))
            for box, wanted in zip(boxes, expected):
                self.assertAlmostEqual(box, wanted, delta=0.01)

    def test_traces_without_blocks_give_no_chart(self):
        run_program(self.folder, "train", "ulysses", "--ranks", "2", "--steps", "1", "--global-batch", "1", "--data", GOLDEN / "tokens.bin",
                    "--trace", "ulysses.json")
        self.assertEqual(ring.charts(results.read([self.folder / "ulysses.json"])), [])
        self.assertIn("no data for a ring plot", run_program(self.folder, "plot", "ring", "ulysses.json", status=2).stderr)

    def test_the_program_draws_it(self):
        done = run_program(self.folder, "plot", "ring", "zig-zag.trace.json", "-o", "p.png")
        self.assertIn("p.png: Attention of one layer: ring-attention, forward: ", done.stdout)


class Documents(unittest.TestCase):
    def test_pairs_by_layout_are_those_of_the_run(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "text").write_text("".join("x" * (31 * i % 23) + "\n\n" for i in range(300)))
            run_program(folder, "train", "cp", "--ranks", "4", "--documents", "--data", "text", "--global-batch", "1", "--steps", "1",
                        "--json", "run.json")
            data = json.loads((folder / "run.json").read_text())
            found = results.read([folder / "run.json"])
        layouts = {record["layout"]: record for record in data["layouts"]}
        (chart,) = context.charts(found)
        self.assertEqual([axes.get_title(loc="left") for axes in chart.figure.axes], list(layouts))
        for axes, record in zip(chart.figure.axes, layouts.values()):
            self.assertEqual([bar.get_width() for bar in axes.patches], record["pairs"])
        section = report_models.context_section(found)
        for layout in ("zig-zag", "balanced"):
            pairs = layouts[layout]["pairs"]
            self.assertIn(f"{max(pairs) * len(pairs) / sum(pairs):.3f} times", section.finding)
        self.assertLess(max(layouts["balanced"]["pairs"]), max(layouts["zig-zag"]["pairs"]))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
