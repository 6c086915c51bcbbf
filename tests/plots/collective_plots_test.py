"""Plots of collectives: crossovers, fits, scaling compared with closed forms, and bytes between ranks.

python3 collective_plots_test.py PROGRAM SOURCE_FOLDER
"""

import copy
import pathlib
import subprocess
import sys
import tempfile
import unittest

from plots_setting import PROGRAM, SOURCE  # first: it adds the plots to the path

import bandwidth
import bench_run
import collective_points
import fit
import matrix
import plot
import results
import scaling
import timeline

UNIT = ["--clock", "unit", "--link", "alpha=2us,beta=1GB/s", "-n", "1", "-w", "0"]
SIZES = [2 ** exponent for exponent in range(10, 21, 2)]


class CollectivePlots(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)

    @classmethod
    def bench(cls, operation, *words):
        done = subprocess.run([PROGRAM, "bench", operation, *words], cwd=cls.folder, capture_output=True, text=True, timeout=200)
        assert done.returncode == 0, f"{words}: status {done.returncode}\n{done.stdout}{done.stderr}"

    def lines(self, times):
        """Lines of points at SIZES, from {algorithm: time of a size}."""
        points = [collective_points.BenchPoint("all_reduce", name, "threads", 2, size, True, {"p50_us": time(size)})
                  for name, time in times.items() for size in SIZES]
        return collective_points.lines_of(points)

    def test_a_crossover_is_the_intersection_of_the_lines(self):
        lines = self.lines({"few_steps": lambda n: n / 100, "few_bytes": lambda n: 40.96 * (n / 4096) ** 0.5,
                            "never": lambda n: n})
        ((at, time, was, now),) = bandwidth.crossovers(lines)
        self.assertAlmostEqual(at / 4096, 1)
        self.assertAlmostEqual(time, 40.96)
        self.assertEqual((was, now), ("few_steps", "few_bytes"))

    def test_a_crossover_between_sizes_is_interpolated(self):
        lines = self.lines({"a": lambda n: n / 100, "b": lambda n: 81.92 * (n / 8192) ** 0.5})
        ((at, _, _, _),) = bandwidth.crossovers(lines)
        self.assertAlmostEqual(at / 8192, 1)

    def test_an_exact_line_is_fitted_exactly(self):
        alpha, beta = fit.alpha_beta(SIZES, [3 + 0.002 * size for size in SIZES])
        self.assertAlmostEqual(alpha, 3)
        self.assertAlmostEqual(beta, 0.002)

    def test_a_fit_has_no_negative_latency_or_bandwidth(self):
        alpha, beta = fit.alpha_beta(SIZES, [0.002 * size - 1 for size in SIZES])
        self.assertEqual(alpha, 0)
        self.assertGreater(beta, 0)
        alpha, beta = fit.alpha_beta(SIZES, [10 - 1e-6 * size for size in SIZES])
        self.assertEqual(beta, 0)
        self.assertAlmostEqual(alpha, 10, delta=1)

    def test_in_virtual_time_the_fit_finds_the_links(self):
        self.bench("all_reduce", *UNIT, "--ranks", "4", "-b", "1K", "-e", "1M", "-f", "4", "--algorithm", "recursive_doubling",
                   "--json", "fit.json")
        (chart,) = fit.charts(results.read([self.folder / "fit.json"]))
        ((name, alpha, bandwidth_gb, deviation, _),) = chart.rows
        # Two steps, each with one latency and all bytes.
        self.assertEqual((name, alpha, bandwidth_gb), ("recursive_doubling", "4", "0.5"))
        self.assertLess(abs(float(deviation)), 0.05)
        _, residuals = chart.figure.axes
        for ratio in residuals.lines[0].get_ydata():
            self.assertAlmostEqual(ratio, 1, places=3)

    def test_scaling_lies_on_the_closed_forms(self):
        names = []
        for ranks in ("2", "4", "8"):
            names.append(self.folder / f"ranks_{ranks}.json")
            self.bench("all_reduce", *UNIT, "--ranks", ranks, "-b", "64K", "-e", "64K", "--device", "none", "--algorithm",
                       "ring,binomial_tree", "--json", names[-1])
        read = results.read(names)
        (chart,) = scaling.charts(read)
        self.assertEqual({row[0]: [r[1] for r in chart.rows if r[0] == row[0]] for row in chart.rows},
                         {"ring": [2, 4, 8], "binomial_tree": [2, 4, 8]})
        self.assertEqual({row[4] for row in chart.rows}, {"+0.00"})
        drawn = list(chart.figure.axes[0].lines[0].get_ydata())
        for ranks, time in zip((2, 4, 8), drawn, strict=True):  # 2 (p - 1) (a + n / p b), a = 2 us, b = 1 us per KB
            self.assertAlmostEqual(time, 2 * (ranks - 1) * (2 + 65.536 / ranks))
        changed = copy.deepcopy(read)
        for entry in changed.benchmarks[1].data["benchmarks"]:
            entry["p50_us"] *= 1.5
        self.assertIn("+50.00", {row[4] for row in scaling.charts(changed)[0].rows})
        self.assertEqual(scaling.charts(results.read(names[:1])), [])
        # Measured and simulated points share one plot and are compared with the same closed form.
        measured = copy.deepcopy(read)
        for run in measured.benchmarks:
            run.data["context"]["lockstep.clock"] = "wall"
            for entry in run.data["benchmarks"]:
                entry["name"] = entry["name"].replace("virtual", "mpi")
                entry["p50_us"] *= 1.25
                entry["model_us"] *= 3
        (chart,) = scaling.charts(results.Results(benchmarks=read.benchmarks + measured.benchmarks))
        self.assertEqual({(row[0], row[4]) for row in chart.rows},
                         {("ring", "+0.00"), ("binomial_tree", "+0.00"), ("ring, real", "+25.00"), ("binomial_tree, real", "+25.00")})
        self.assertIn("real time and virtual time", chart.title)
        _, deviations = chart.figure.axes
        self.assertEqual([round(bar.get_height(), 6) for bar in deviations.patches], [25.0] * 6)
        self.assertEqual(len(scaling.charts(measured)), 1)

    def test_two_files_are_two_lines_and_a_ratio(self):
        words = [*UNIT, "--ranks", "4", "-b", "1K", "-e", "64K", "-f", "8", "--algorithm", "ring"]
        names = [self.folder / folder / "bench.json" for folder in ("old", "new")]
        for name, link in zip(names, ("alpha=2us,beta=1GB/s", "alpha=4us,beta=0.5GB/s")):
            name.parent.mkdir()
            self.bench("all_reduce", *words, "--link", link, "--json", name)
        (chart,) = bandwidth.charts(results.read(names))
        times, ratio, _ = chart.figure.axes
        self.assertEqual([line.get_label() for line in times.lines], [f"ring, {name}" for name in names])
        old, new = (list(line.get_ydata()) for line in times.lines)
        self.assertEqual(len(old), 3)
        for slow, fast in zip(new, old):
            self.assertAlmostEqual(slow / fast, 2)
        drawn = ratio.lines[-1]
        self.assertEqual(list(drawn.get_xdata()), [1024, 8192, 65536])
        for value in drawn.get_ydata():
            self.assertAlmostEqual(value, 2)
        self.assertIn("200 % of the first file's time", chart.alt)
        (alone,) = bandwidth.charts(results.read(names[:1]))
        self.assertEqual(len(alone.figure.axes), 2)
        self.assertEqual([line.get_label() for line in alone.figure.axes[0].lines], ["ring"])

    def test_types_are_not_one_line(self):
        self.bench("all_reduce", *UNIT, "--ranks", "2", "-b", "1K", "-e", "8K", "-f", "8", "-d", "all", "--algorithm", "ring", "--json", "d.json")
        (chart,) = bandwidth.charts(results.read([self.folder / "d.json"]))
        self.assertIn("ring, bf16 sum", [row[0] for row in chart.rows])
        self.assertEqual(len(chart.figure.axes[0].lines), 12)

    def test_a_percentile_is_drawn_only_of_enough_samples(self):
        self.bench("all_reduce", *UNIT, "-b", "1K", "-e", "8K", "-f", "8", "--algorithm", "ring", "--json", "few.json")
        (chart,) = bandwidth.charts(results.read([self.folder / "few.json"]))
        self.assertEqual({row[3] for row in chart.rows}, {"-"})

    def test_a_picture_tells_title_machine_and_date(self):
        self.bench("all_reduce", *UNIT, "-b", "1K", "-e", "8K", "-f", "8", "--algorithm", "ring", "--json", "told.json")
        read = results.read([self.folder / "told.json"])
        (environment,) = read.environments()
        (chart,) = bandwidth.charts(read)
        plot.add_heading(chart, plot.origin(read))
        texts = [text.get_text().replace("\n", " ") for text in (chart.figure._suptitle, chart.figure._supxlabel)]
        self.assertEqual(texts[0], chart.title)
        for fact in (environment["processor"], f"{environment['cores']} cores", environment["time"][:10]):
            self.assertIn(" ".join(fact.split()), " ".join(texts[1].split()))

    def test_a_benchmarks_trace_shows_the_last_call_of_each_collective(self):
        self.bench("all_reduce", *UNIT, "--ranks", "4", "-b", "4K", "-e", "64K", "-f", "16", "-c", "0", "--algorithm", "ring,binomial_tree",
                   "--trace", "calls.json")
        read = results.read([self.folder / "calls.json"])
        (chart,) = timeline.charts(read)
        titles = [axes.get_title(loc="left") for axes in chart.figure.axes]
        # 2 (p - 1) (a + n / p b), a = 2 us, b = 1 us per KB
        self.assertEqual(titles[0], "all_reduce/ring of 64 KiB: 110 µs")
        self.assertTrue(titles[1].startswith("all_reduce/binomial_tree of 64 KiB"))
        ring = [row for row in chart.rows if row[0] == "all_reduce/ring"]
        self.assertEqual({row[1] for row in ring}, {0, 1, 2, 3})
        self.assertEqual({row[3] for row in ring}, {16384})
        arrows = [line for line in chart.figure.axes[0].lines if len(line.get_xdata()) == 2]
        self.assertEqual(sorted(tuple(line.get_ydata()) for line in arrows), sorted([(rank, (rank + 1) % 4) for rank in range(4)] * 6))
        self.bench("all_reduce", "--clock", "unit", "--ranks", "2", "-b", "4K", "-e", "4K", "-n", "1", "--trace", "no_time.json")
        self.assertEqual(timeline.charts(results.read([self.folder / "no_time.json"])), [])

    def test_the_matrix_is_the_closed_form_of_each_pair(self):
        self.bench("all_reduce", *UNIT, "--ranks", "4", "-b", "64K", "-e", "64K", "-c", "0", "--algorithm", "ring,linear", "-n", "3",
                   "--trace", "trace.json")
        (trace,) = results.read([self.folder / "trace.json"]).traces
        found = dict(matrix.panels(trace))
        self.bench("all_reduce", "--clock", "unit", "--ranks", "4", "-b", "64K", "-e", "64K", "-c", "0", "--algorithm", "ring,linear",
                   "--trace", "timeless.json")
        timeless = dict(matrix.panels(results.read([self.folder / "timeless.json"]).traces[0]))
        for name in ("all_reduce/ring of 64 KiB", "all_reduce/linear of 64 KiB"):
            self.assertEqual(found[name], timeless[name])
        ring = found["all_reduce/ring of 64 KiB"]
        self.assertEqual(ring, {(rank, (rank + 1) % 4): (6, 6 * 16384) for rank in range(4)})
        linear = found["all_reduce/linear of 64 KiB"]
        self.assertEqual(linear, {**{(0, rank): (1, 65536) for rank in (1, 2, 3)}, **{(rank, 0): (1, 65536) for rank in (1, 2, 3)}})
        (chart,) = matrix.charts(results.Results(traces=[trace]))
        self.assertIn(("all_reduce/ring of 64 KiB", 3, 0, "6", "98304"), chart.rows)

    def test_an_uneven_exchange_shows_its_matrix_and_its_skew(self):
        (self.folder / "m.txt").write_text("0 4K 8\n16 0 4\n0 1K 0\n")
        self.bench("all_to_all_v", "--ranks", "3", "--matrix", "m.txt", *UNIT, "--algorithm", "pairwise", "--trace", "m.json")
        found = dict(matrix.panels(results.read([self.folder / "m.json"]).traces[0]))
        self.assertEqual(found["all_to_all_v/pairwise"], {(0, 1): (1, 4096), (0, 2): (1, 8), (1, 0): (1, 16), (1, 2): (1, 4),
                                                          (2, 0): (1, 0), (2, 1): (1, 1024)})
        names = []
        for skew in ("uniform", "zipf:1.2"):
            names.append(self.folder / f"{skew}.json")
            self.bench("all_to_all_v", "--ranks", "3", "-b", "12K", "-e", "48K", "--skew", skew, *UNIT, "--algorithm", "pairwise", "--json",
                       names[-1])
        ((operation, points),) = collective_points.by_operation_and_ranks(results.read(names))
        self.assertEqual(operation, "all_to_all_v")
        self.assertEqual(list(collective_points.lines_of(points)), ["pairwise, f32 uniform", "pairwise, f32 zipf:1.2"])

    def test_lines_are_named_by_their_differences(self):
        def point(algorithm, transport, ranks):
            return collective_points.BenchPoint("all_reduce", algorithm, transport, ranks, 8, True, {"p50_us": 1})

        self.assertEqual(list(collective_points.lines_of([point("ring", "threads", 2), point("openmpi", "mpi", 2)])), ["ring", "openmpi"])
        self.assertEqual(list(collective_points.lines_of([point("ring", "threads", 2), point("ring", "mpi", 2), point("vendor", "mpi", 2)])),
                         ["ring, threads", "ring, mpi", "the library's own"])
        run = bench_run.BenchRun(pathlib.Path("x"), {"benchmarks": [
            {"name": f"all_reduce/ring/threads/ranks:{ranks}", "run_type": "iteration", "busbw_gb_per_s": 1, "ranks": ranks, "bytes": 8,
             "in_place": 1} for ranks in (4, 2)]})
        self.assertEqual([points[0].ranks for _, points in collective_points.by_operation_and_ranks(results.Results(benchmarks=[run]))], [2, 4])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
