"""Plots of tensor parallelism: the drawn numbers equal the counted and simulated ones.

python3 tensor_plots_test.py PROGRAM SOURCE_FOLDER
"""

import copy
import html
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

from plots_setting import PROGRAM

from matplotlib.backends.backend_agg import FigureCanvasAgg

import report
import results
import tensor

SWEEP = ["bench", "tp", "--width", "256", "--heads", "8", "--sequence-length", "64", "--ranks", "1,2,4,8",
         "--variant", "tp,sp,sp-kept,sp-overlap", "--recompute", "none,selective,full", "--link", "nvlink,ndr"]


def run_program(folder, *words, status=0):
    done = subprocess.run([PROGRAM, *words], cwd=folder, capture_output=True, text=True, timeout=200)
    assert done.returncode == status, f"{words}: status {done.returncode}\n{done.stdout}{done.stderr}"
    return done


def drawn(axes):
    """The points of every line, by label."""
    return {line.get_label(): list(zip(line.get_xdata(), line.get_ydata())) for line in axes.lines}


def texts_of(figure):
    """The labels of the legend next to each row of panels."""
    return [[text.get_text() for text in side.legends[0].get_texts()] for side in figure.subfigs if side.legends]


class Tensor(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        run_program(cls.folder, *SWEEP, "--json", "sweep.json")
        cls.data = json.loads((cls.folder / "sweep.json").read_text())
        (cls.chart,) = tensor.charts(results.read([cls.folder / "sweep.json"]))
        cls.times, cls.memory, cls.traffic = (cls.chart.figure.axes[i:j] for i, j in ((0, 2), (2, 5), (5, 8)))

    def entries(self, **wanted):
        return [entry for entry in self.data["benchmarks"] if all(entry[key] == value for key, value in wanted.items())]

    def curve(self, key, **wanted):
        return [(entry["ranks"], entry[key]) for entry in self.entries(**wanted)]

    def charts_of(self, benchmarks, **context):
        data = {"context": {**self.data["context"], **context}, "benchmarks": benchmarks}
        path = self.folder / f"{self._testMethodName}.json"
        path.write_text(json.dumps(data))
        return tensor.charts(results.read([path]))

    def assert_points(self, points, expected):
        for point, other in zip(points, expected, strict=True):
            self.assertAlmostEqual(point[0], other[0])
            self.assertAlmostEqual(point[1], other[1])

    def test_titles_name_the_layer_and_the_roofline(self):
        for title in (self.chart.title, self.chart.figure.texts[0].get_text()):
            self.assertIn("width 256, 8 heads, 1 x 64 tokens, bf16", title.replace("\n", " "))
            self.assertIn("400 TFLOP/s, 3000 GB/s", title.replace("\n", " "))
        self.assertEqual([axes.get_title(loc="left").partition(":")[0] for axes in self.chart.figure.axes], [
            "nvlink", "ndr", "recompute none", "recompute selective", "recompute full",
            "forward (recompute none, selective)", "forward (recompute full)", "backward"])

    def test_bars_are_compute_and_exposed_communication_of_the_first_variant(self):
        for axes, link in zip(self.times, ("nvlink", "ndr")):
            line = self.entries(link=link, variant="tp", recompute="none")
            compute, exposed = axes.containers
            for bar, above, entry in zip(compute, exposed, line, strict=True):
                self.assertAlmostEqual(bar.get_height(), 1e3 * entry["compute_seconds"])
                self.assertAlmostEqual(above.get_y(), bar.get_height())
                self.assertAlmostEqual(above.get_height(), 1e3 * entry["exposed_seconds"])
                self.assertAlmostEqual(above.get_y() + above.get_height(),
                                       1e3 * (entry["forward_seconds"] + entry["backward_seconds"]))
            shares = [text.get_text().split("\n")[1] for text in axes.texts]
            self.assertEqual(shares, [f"{100 * entry['exposed_seconds'] / entry['real_time'] * 1e6:.0f} %" for entry in line])
            self.assertEqual([label.get_text() for label in axes.get_xticklabels()], ["1", "2", "4", "8"])
            faster = line[0]["real_time"] / line[-1]["real_time"]
            self.assertEqual(axes.get_title(loc="left"), f"{link}: 8 ranks {faster:.1f} times as fast as 1")
        self.assertEqual(self.times[0].get_ylim(), self.times[1].get_ylim())

    def test_markers_next_to_a_bar_are_the_other_variants(self):
        for axes, link in zip(self.times, ("nvlink", "ndr")):
            marked = drawn(axes)
            self.assertEqual(list(marked), ["sp", "sp-kept", "sp-overlap"])
            for variant, points in marked.items():
                for place, ((x, y), entry) in enumerate(
                        zip(points, self.entries(link=link, variant=variant, recompute="none"), strict=True)):
                    self.assertTrue(place + tensor.BAR / 2 < x < place + 1 - tensor.BAR / 2, (variant, place, x))
                    self.assertAlmostEqual(y, 1e3 * (entry["forward_seconds"] + entry["backward_seconds"]))

    def test_memory_is_points_on_closed_forms_and_megatrons_memory(self):
        for axes, recompute in zip(self.memory, ("none", "selective", "full")):
            lines = drawn(axes)
            self.assertEqual(len(lines), 9)
            for name, variant in (("tp", "tp"), ("sp, sp-overlap", "sp"), ("sp, sp-overlap", "sp-overlap"), ("sp-kept", "sp-kept")):
                for label, key in ((name, "expected_activation_bytes"), (f"{name}, counted", "activation_bytes"),
                                   (f"{name}, Megatron-LM", "megatron_activation_bytes")):
                    self.assert_points(lines[label], self.curve(key, link="ndr", variant=variant, recompute=recompute))
            self.assertEqual(axes.get_yscale(), "log")
            lowest, highest = axes.get_ylim()
            self.assertTrue(all(lowest < y < highest for points in lines.values() for _, y in points))

    def test_traffic_is_points_on_closed_forms_by_direction(self):
        panels = (("forward", "none"), ("forward", "full"), ("backward", "none"))
        for axes, (direction, recompute) in zip(self.traffic, panels):
            lines = drawn(axes)
            self.assertEqual(len(lines), 6)
            for name, variant in (("tp", "tp"), ("sp, sp-overlap", "sp"), ("sp-kept", "sp-kept")):
                for label, key in ((name, f"expected_{direction}_bytes"), (f"{name}, counted", f"{direction}_bytes")):
                    self.assert_points(lines[label], self.curve(key, link="nvlink", variant=variant, recompute=recompute))
        self.assertEqual(drawn(self.traffic[0])["tp"][1][1] * 2, drawn(self.traffic[1])["tp"][1][1])

    def test_points_and_lines_are_told_apart_where_they_differ(self):
        changed = copy.deepcopy(self.entries(variant="tp", recompute="none", link="ndr"))
        for entry in changed:
            entry["activation_bytes"] += 4096
            entry["forward_bytes"] += 512
            entry["backward_bytes"] += 1024
        (chart,) = self.charts_of(changed)
        for axes, key, more in zip(chart.figure.axes[1:], ("activation", "forward", "backward"), (4096, 512, 1024)):
            lines = drawn(axes)
            form = self.curve(f"expected_{key}_bytes", variant="tp", recompute="none", link="ndr")
            self.assert_points(lines["tp"], form)
            self.assert_points(lines["tp, counted"], [(ranks, count + more) for ranks, count in form])

    def test_variants_share_a_line_only_if_all_is_the_same(self):
        changed = copy.deepcopy(self.entries(link="nvlink"))
        next(entry for entry in changed if entry["variant"] == "sp-overlap" and entry["ranks"] == 8)["backward_bytes"] += 2
        (chart,) = self.charts_of(changed)
        self.assertEqual(list(drawn(chart.figure.axes[-1])),
                         ["tp", "sp", "sp-kept", "sp-overlap", "tp, counted", "sp, counted", "sp-kept, counted",
                          "sp-overlap, counted"])

    def test_legends_name_what_is_drawn(self):
        times, memory, traffic = texts_of(self.chart.figure)
        self.assertEqual(times, ["exposed communication,\nand its share of the time", "compute", "sp: its time", "sp-kept: its time",
                                 "sp-overlap: its time"])
        self.assertEqual(traffic, ["tp", "sp, sp-overlap", "sp-kept", "filled: counted", "line: closed form"])
        self.assertEqual(memory, [*traffic, "dashed, ring: Megatron-LM"])

    def test_nothing_overlaps(self):
        figure = self.chart.figure
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        renderer = canvas.get_renderer()
        boxes = [axes.get_tightbbox(renderer) for axes in figure.axes]
        boxes += [side.legends[0].get_window_extent(renderer) for side in figure.subfigs if side.legends]
        for i, box in enumerate(boxes):
            self.assertTrue(figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1, box)
            for other in boxes[i + 1:]:
                self.assertFalse(box.overlaps(other), (box, other))

    def test_rows_are_the_file(self):
        self.assertEqual(len(self.chart.rows), len(self.data["benchmarks"]))
        self.assertEqual(len(set(self.chart.columns)), len(self.chart.columns))
        for row, entry in zip(self.chart.rows, self.data["benchmarks"]):
            values = dict(zip(self.chart.columns, row, strict=True))
            for key in ("variant", "recompute", "link", "ranks"):
                self.assertEqual(values[key], entry[key])
            for key in ("forward", "backward", "compute", "exposed"):
                self.assertAlmostEqual(float(values[f"{key} ms"]), 1e3 * entry[f"{key}_seconds"], delta=0.0005)
            for key in ("forward", "backward", "activation"):
                self.assertEqual((values[f"{key} bytes"], values[f"{key} closed form"]),
                                 (entry[f"{key}_bytes"], entry[f"expected_{key}_bytes"]))
            self.assertEqual(float(values["Megatron-LM activation bytes"]), round(entry["megatron_activation_bytes"]))

    def test_one_point_and_one_rank_can_be_drawn(self):
        for ranks in (1, 4):
            only = self.entries(variant="sp", recompute="full", link="ndr", ranks=ranks)
            (chart,) = self.charts_of(only)
            FigureCanvasAgg(chart.figure).draw()
            self.assertEqual([axes.get_title(loc="left") for axes in chart.figure.axes],
                             ["ndr", "recompute full", "forward", "backward"])
            self.assertEqual(drawn(chart.figure.axes[3])["sp, counted"], [(ranks, only[0]["backward_bytes"])])
            self.assertEqual(len(chart.rows), 1)

    def test_points_that_did_not_fit_are_left_out(self):
        some = [entry for entry in self.entries(recompute="none")
                if entry["ranks"] < 4 or (entry["variant"], entry["link"]) == ("tp", "ndr")]
        (chart,) = self.charts_of(some)
        self.assertEqual([len(axes.containers[0]) for axes in chart.figure.axes[:2]], [2, 4])
        self.assertEqual([len(drawn(chart.figure.axes[2])[name]) for name in ("tp", "sp, sp-overlap")], [4, 2])

    def test_layers_and_rooflines_are_not_mixed(self):
        other = self.folder / "other.json"
        context = {**self.data["context"], "lockstep.roofline": "1 TFLOP/s, 1 GB/s"}
        other.write_text(json.dumps({"context": context, "benchmarks": self.data["benchmarks"]}))
        charts = tensor.charts(results.read([self.folder / "sweep.json", other]))
        self.assertEqual([chart.title.split("ranks of ")[1] for chart in charts], ["400 TFLOP/s, 3000 GB/s", "1 TFLOP/s, 1 GB/s"])

    def test_the_program_draws_it_and_reports_it(self):
        done = run_program(self.folder, "plot", "tensor", "sweep.json", "-o", "sweep.png")
        self.assertIn("sweep.png: Time of a layer by ranks, tp: nvlink: ", done.stdout)
        self.assertTrue((self.folder / "sweep.png").read_bytes().startswith(b"\x89PNG"))
        run_program(self.folder, *SWEEP, "--plot", "direct.svg")
        self.assertTrue((self.folder / "direct.svg").read_bytes().startswith(b"<?xml"))
        self.assertIn("Tensor parallelism: a layer of width 256", self.chart.title)
        page = report.text_of(results.read([self.folder / "sweep.json"]), "title")
        self.assertIn("<h2>Tensor and sequence parallelism</h2>", page)
        self.assertIn(f'aria-label="{html.escape(self.chart.alt)}"', page)
        self.assertIn(f"The numbers: {len(self.data['benchmarks'])} rows", page)

    def test_foreign_and_broken_files_are_refused_by_name(self):
        run_program(self.folder, "schedule", "1f1b", "--no-chart", "--json", "foreign.json")
        run_program(self.folder, "bench", "pipeline", "--ranks", "2", "--micro-batches", "2", "--schedule", "1f1b",
                    "--simulate", "--json", "pipeline.json")
        good = self.data["benchmarks"][0]
        bad = {"foreign.json": None, "pipeline.json": None, "empty.json": []}
        for key in ("variant", "recompute", "link", "ranks", "forward_seconds", "backward_seconds", "compute_seconds",
                    "exposed_seconds", "forward_bytes", "expected_forward_bytes", "backward_bytes", "expected_backward_bytes",
                    "activation_bytes", "expected_activation_bytes", "megatron_activation_bytes"):
            bad[f"no_{key}.json"] = [{name: value for name, value in good.items() if name != key}]
        for number, change in enumerate(({"ranks": 0.0}, {"ranks": "many"}, {"ranks": float("inf")}, {"link": 1}, {"variant": None},
                                         {"forward_bytes": -1.0}, {"activation_bytes": float("nan")}, {"compute_seconds": [1]},
                                         {"forward_seconds": 0.0, "backward_seconds": 0.0})):
            bad[f"wrong_{number}.json"] = [{**good, **change}]
        for name, benchmarks in bad.items():
            if benchmarks is not None:
                (self.folder / name).write_text(json.dumps({"context": self.data["context"], "benchmarks": benchmarks}))
                with self.assertRaises(results.BadInput, msg=name) as raised:
                    results.read([self.folder / name])
                self.assertIn(name, str(raised.exception))
        for key in ("lockstep.layer", "lockstep.roofline"):
            with self.assertRaises(results.BadInput, msg=key):
                self.charts_of([good], **{key: None})
        for name in ("foreign.json", "pipeline.json", "empty.json", "no_link.json"):
            done = run_program(self.folder, "plot", "tensor", name, status=2)
            self.assertIn(name, done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
