"""Plots of pipelines: the drawn numbers equal the simulated and measured ones.

python3 pipeline_plots_test.py PROGRAM SOURCE_FOLDER
"""

import copy
import html
import itertools
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

from plots_setting import PROGRAM

from matplotlib.colors import to_rgb

import bubble
import pipeline
import report
import results
import schedule

SCHEDULES = ("1f1b", "zb-h1", "interleaved", "dualpipe-v")


def run_program(folder, *words, status=0):
    done = subprocess.run([PROGRAM, *words], cwd=folder, capture_output=True, text=True, timeout=200)
    assert done.returncode == status, f"{words}: status {done.returncode}\n{done.stdout}{done.stderr}"
    return done


def drawn_blocks(axes):
    """(rank, begin, width, colour) of every block, in the order of time."""
    found = []
    for collection in axes.collections:
        for path, colour in zip(collection.get_paths(), itertools.cycle(collection.get_facecolors())):
            box = path.get_extents()
            found.append((round((box.y0 + box.y1) / 2), box.x0, box.width, tuple(colour[:3])))
    return sorted(found)


class Schedules(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        for name in SCHEDULES:
            run_program(cls.folder, "schedule", name, "-p", "4", "-m", "8", "--no-chart", "--json", f"{name}.json")
        cls.results = results.read([cls.folder / f"{name}.json" for name in SCHEDULES])
        (cls.chart,) = schedule.charts(cls.results)

    def panels(self):
        return zip(self.chart.figure.axes, (run.data for run in self.results.schedules))

    def test_every_action_is_a_block_at_its_time(self):
        for axes, data in self.panels():
            expected = []
            for rank in data["ranks"]:
                actions = rank["actions"]
                for before, action, after in zip([None, *actions], actions, [*actions[1:], None]):
                    half = (action["end"] - action["begin"]) / 2
                    if action["with_next"]:
                        self.assertEqual((after["begin"], after["end"]), (action["begin"], action["end"]))
                        expected.append((rank["rank"], action["begin"], half))
                    elif before and before["with_next"]:
                        expected.append((rank["rank"], action["begin"] + half, half))
                    else:
                        expected.append((rank["rank"], action["begin"], action["end"] - action["begin"]))
            blocks = drawn_blocks(axes)
            self.assertEqual(len(blocks), len(expected))
            for (row, begin, width, _), (rank, expected_begin, expected_width) in zip(blocks, sorted(expected)):
                self.assertEqual(row, rank)
                self.assertAlmostEqual(begin, expected_begin)
                self.assertAlmostEqual(width, expected_width)

    def test_blocks_of_a_rank_do_not_overlap_and_fill_its_busy_time(self):
        for axes, data in self.panels():
            blocks = drawn_blocks(axes)
            for (row, begin, width, _), (next_row, next_begin, _, _) in zip(blocks, blocks[1:]):
                self.assertTrue(row < next_row or begin + width <= next_begin + 1e-9, (data["name"], row, begin))
            for rank in data["ranks"]:
                self.assertAlmostEqual(sum(block[2] for block in blocks if block[0] == rank["rank"]), rank["busy"])

    def test_each_pass_has_its_colour_and_later_stages_lighter_ones(self):
        colours = {"F": "#0072B2", "B": "#D55E00", "I": "#E69F00", "W": "#CC79A7"}
        for axes, data in self.panels():
            blocks = iter(drawn_blocks(axes))
            for rank in data["ranks"]:
                stages = sorted({action["stage"] for action in rank["actions"]})
                for action in rank["actions"]:
                    own, drawn = to_rgb(colours[action["pass"]]), next(blocks)[3]
                    if action["stage"] == stages[0]:
                        self.assertEqual(drawn, own)
                    else:
                        self.assertTrue(all(light > dark or dark == 1 for light, dark in zip(drawn, own)))
        shades = [schedule.shade(colour, virtual_stage, 2) for colour in colours.values() for virtual_stage in (0, 1)]
        self.assertEqual(len(set(shades)), 8)
        self.assertEqual([text.get_text() for text in self.chart.figure.axes[0].get_legend().get_texts()],
                         ["forward", "backward", "input gradient", "weight gradient", "lighter: later stages of the rank"])

    def test_blocks_show_their_micro_batches(self):
        for axes, data in self.panels():
            numbers = {}
            for text in axes.texts:
                x, y = text.get_position()
                numbers.setdefault(y, []).append((x, int(text.get_text())))
            for rank in data["ranks"]:
                self.assertEqual([number for _, number in sorted(numbers[rank["rank"]])],
                                 [action["micro_batch"] for action in rank["actions"]])

    def test_rows_and_titles_equal_the_results(self):
        self.assertEqual(len(self.chart.rows), len(SCHEDULES))
        for row, (axes, data) in zip(self.chart.rows, self.panels()):
            values = dict(zip(self.chart.columns, row))
            config, bubble = data["config"], data["bubble"]
            self.assertEqual(values["schedule"], data["name"])
            for column, key in (("ranks", "ranks"), ("micro-batches", "micro_batches"), ("stages", "stages")):
                self.assertEqual(values[column], config[key])
            self.assertEqual(float(values["makespan"]), data["makespan"])
            self.assertAlmostEqual(float(values["bubble %"]), 100 * bubble["fraction"], delta=0.005)
            self.assertAlmostEqual(float(values["overhead %"]), 100 * bubble["overhead"], delta=0.005)
            self.assertEqual(values["most in flight"], max(rank["in_flight"] for rank in data["ranks"]))
            self.assertEqual(values["most unfinished"], max(rank["unfinished"] for rank in data["ranks"]))
            self.assertEqual(axes.get_title(loc="left"),
                             f"{data['name']}: p = 4, m = 8, v = {config['stages'] // 4}; makespan {data['makespan']:g}, "
                             f"bubble {100 * bubble['fraction']:.1f} %")

    def test_in_flight_and_unfinished_are_maxima_over_ranks(self):
        changed = copy.deepcopy(self.results)
        changed.schedules[0].data["ranks"][1]["in_flight"] = 70
        changed.schedules[0].data["ranks"][2]["unfinished"] = 90
        self.assertEqual(schedule.charts(changed)[0].rows[0][-2:], (70, 90))

    def test_all_share_one_time_scale(self):
        longest = max(run.makespan for run in self.results.schedules)
        self.assertEqual({axes.get_xlim() for axes in self.chart.figure.axes}, {(0, longest)})

    def test_equal_schedules_are_named_by_their_files(self):
        run_program(self.folder, "schedule", "1f1b", "-p", "4", "-m", "8", "--hop", "0.5", "--no-chart", "--json", "hop.json")
        (chart,) = schedule.charts(results.read([self.folder / "1f1b.json", self.folder / "hop.json"]))
        self.assertEqual([axes.get_title(loc="left")[-7:] for axes in chart.figure.axes], [" (1f1b)", "% (hop)"])

    def test_small_blocks_have_no_numbers(self):
        run_program(self.folder, "schedule", "zb-v", "-p", "16", "-m", "64", "--no-chart", "--json", "large.json")
        (chart,) = schedule.charts(results.read([self.folder / "large.json"]))
        (axes,) = chart.figure.axes
        self.assertEqual((len(drawn_blocks(axes)), len(axes.texts)), (16 * 64 * 2 * 3, 0))

    def test_collectives_are_a_strip_below_the_blocks(self):
        run_program(self.folder, "schedule", "interleaved", "-p", "2", "-m", "4", "--sharded", "--most-unsharded", "1",
                    "--unshard-time", "1", "--reduce-time", "2", "--no-chart", "--json", "sharded.json")
        sharded = results.read([self.folder / "sharded.json"])
        (chart,) = schedule.charts(sharded)
        (axes,) = chart.figure.axes
        colours = {"UNSHARD": "#56B4E9", "REDUCE_GRAD": "#009E73"}
        expected = [(rank["rank"], action["begin"], action["end"] - action["begin"], to_rgb(colours[action["pass"]]))
                    for rank in sharded.schedules[0].data["ranks"] for action in rank["actions"] if action["pass"] in colours]
        strip = [block for block in drawn_blocks(axes) if block[3] in {colour[3] for colour in expected}]
        self.assertEqual(len(expected), 11 + 5 + 4)
        self.assertEqual(strip, sorted(expected))
        boxes = [path.get_extents() for collection in axes.collections for path in collection.get_paths()]
        for above, below in itertools.permutations(boxes, 2):
            if above.y1 - above.y0 > below.y1 - below.y0 and round(above.y0 + 0.45) == round(below.y1 - 0.45):
                self.assertLess(above.y1, below.y0)
        self.assertIn("strip", chart.explanation)
        self.assertEqual([text.get_text() for text in axes.get_legend().get_texts()][-3:],
                         ["unshard parameters", "reduce gradients", "lighter: later stages of the rank"])
        # Collectives without times are not drawn: the picture equals that of the schedule without collectives.
        run_program(self.folder, "schedule", "interleaved", "-p", "4", "-m", "8", "--sharded", "--no-chart", "--json", "free.json")
        (chart,) = schedule.charts(results.read([self.folder / "free.json"]))
        self.assertEqual(drawn_blocks(chart.figure.axes[0]), drawn_blocks(self.chart.figure.axes[SCHEDULES.index("interleaved")]))

    def test_the_program_draws_it_and_reports_it(self):
        files = [f"{name}.json" for name in SCHEDULES]
        done = run_program(self.folder, "plot", "schedule", *files, "-o", "schedules.png")
        self.assertIn("zb-h1: p = 4, m = 8, v = 1; makespan 27, bubble 11.1 %", done.stdout)
        self.assertTrue((self.folder / "schedules.png").read_bytes().startswith(b"\x89PNG"))
        page = report.text_of(self.results, "title")
        self.assertIn("<h2>Pipeline schedules</h2>", page)
        self.assertIn(f'aria-label="{html.escape(self.chart.alt)}"', page)
        run_program(self.folder, "schedule", "gpipe", "--plot", "direct.svg")
        self.assertTrue((self.folder / "direct.svg").read_bytes().startswith(b"<?xml"))

    def test_broken_files_are_refused_by_name(self):
        good = json.loads((self.folder / "dualpipe-v.json").read_text())

        def changed(change):
            data = copy.deepcopy(good)
            change(data)
            return json.dumps(data)

        def first(data):
            return data["ranks"][0]["actions"][0]

        bad = {"cut.json": json.dumps(good)[:500], "hollow.json": '{"schema": "lockstep.schedule/1"}',
               "newer.json": changed(lambda data: data.update(schema="lockstep.schedule/9")),
               "makespan.json": changed(lambda data: data.update(makespan=1)),
               "rank.json": changed(lambda data: data["ranks"].pop()),
               "idle.json": changed(lambda data: [rank["actions"].clear() for rank in data["ranks"]]),
               "end.json": changed(lambda data: first(data).pop("end")),
               "text.json": changed(lambda data: first(data).update(begin="0")),
               "pass.json": changed(lambda data: first(data).update({"pass": "X"})),
               "stage.json": changed(lambda data: first(data).update(stage=8)),
               "whole.json": changed(lambda data: first(data).update({"pass": "UNSHARD", "with_next": True})),
               "batch.json": changed(lambda data: first(data).pop("micro_batch")),
               "alone.json": changed(lambda data: data["ranks"][0]["actions"][-1].update(with_next=True))}
        for name, text in bad.items():
            (self.folder / name).write_text(text)
            with self.assertRaises(results.BadInput, msg=name) as raised:
                results.read([self.folder / name])
            self.assertIn(name, str(raised.exception))
        done = run_program(self.folder, "plot", "schedule", "end.json", status=2)
        self.assertIn("end.json", done.stderr)
        self.assertNotIn("Traceback", done.stderr)


def entry(name, ranks, micro_batches, virtual_stages=1, trained=True, has_form=True):
    """An entry as the program writes it. Each measured bubble is 5/4 of its closed form."""
    fraction = (ranks - 1) / (virtual_stages * micro_batches + ranks - 1)
    shape = f"ranks:{ranks}/micro_batches:{micro_batches}/chunks:{virtual_stages}"
    values = {"name": f"pipeline/{name}/{shape}/iterations:1/manual_time", "run_type": "iteration",
              "ranks": float(ranks), "micro_batches": float(micro_batches), "chunks": float(virtual_stages),
              "simulated_fraction": fraction, "in_flight": list(range(ranks, 0, -1)), "real_time": 1.0, "time_unit": "us"}
    if has_form:
        values["expected_fraction"] = fraction
    if trained:
        values |= {"bubble_fraction": 1.25 * fraction, "tokens_per_second": 1000.0 * micro_batches,
                   "peak_activation_bytes": [1024 * (ranks - rank) for rank in range(ranks)]}
    return values


def bench(entries, clock="cpu"):
    return {"context": {"lockstep.schema": "lockstep.bench/1", "lockstep.environment": '{"cores": 2}', "lockstep.clock": clock,
                        "lockstep.link": "alpha=0,beta=0"}, "benchmarks": entries}


class Pipelines(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)

    def read(self, *files):
        paths = []
        for number, data in enumerate(files):
            paths.append(self.folder / f"{self._testMethodName}_{number}.json")
            paths[-1].write_text(json.dumps(data))
        return results.read(paths)

    def charts(self, entries, **options):
        return pipeline.charts(self.read(bench(entries, **options)))

    def trained(self):
        return [entry("1f1b", 4, m) for m in (8, 4, 16)] + [entry("interleaved", 4, m, virtual_stages=2) for m in (4, 8, 16)]

    @staticmethod
    def drawn(axes):
        return {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines}

    def assert_points(self, drawn, expected):
        self.assertEqual(list(drawn[0]), expected[0])
        for one, other in zip(drawn[1], expected[1], strict=True):
            self.assertAlmostEqual(one, other)

    def test_lines_are_closed_forms_and_points_measurements(self):
        for clock in ("cpu", "wall"):
            bubble = self.charts(self.trained(), clock=clock)[0]
            (axes,) = bubble.figure.axes
            drawn = self.drawn(axes)
            self.assertEqual(len(drawn), 6)
            for name, virtual_stages in (("1f1b", 1), ("interleaved", 2)):
                forms = [100 * 3 / (virtual_stages * m + 3) for m in (4, 8, 16)]
                self.assert_points(drawn[name], ([1, 2, 4], forms))
                self.assert_points(drawn[f"{name}, simulated"], ([1, 2, 4], forms))
                self.assert_points(drawn[f"{name}, measured"], ([1, 2, 4], [1.25 * form for form in forms]))
            self.assertEqual((axes.get_xscale(), axes.xaxis.get_transform().base), ("log", 2))
            self.assertEqual(axes.get_xlabel(), "micro-batches by rank, m / p")

    def test_rows_hold_all_numbers_and_deviations(self):
        bubble, memory, speed = self.charts(self.trained())
        self.assertEqual(bubble.rows[:2], [
            ("1f1b", 4, 1, 4, "42.86", "42.86", "+0.00", "53.57", "+25.00", "4000"),
            ("1f1b", 4, 1, 8, "27.27", "27.27", "+0.00", "34.09", "+25.00", "8000")])
        self.assertEqual(len(bubble.rows), 6)
        self.assertIn("interleaved 8.6 % simulated and 10.7 % measured", bubble.alt)
        self.assertEqual(memory.rows[:2], [("1f1b", 0, 16, 4, 4096), ("1f1b", 1, 16, 3, 3072)])
        self.assertEqual(len(memory.rows), 8)
        self.assertEqual(speed.rows[-1], ("interleaved", 4, 2, 16, "16000"))
        self.assertIn("16, 16000", speed.alt)
        for chart in (bubble, memory, speed):
            self.assertEqual({len(row) for row in chart.rows}, {len(chart.columns)})

    def test_memory_is_a_bar_for_each_rank_of_the_largest_step(self):
        memory = self.charts(self.trained())[1]
        (axes,) = memory.figure.axes
        self.assertEqual([[bar.get_height() for bar in bars] for bars in axes.containers], [[4096, 3072, 2048, 1024]] * 2)
        lefts = [bar.get_x() for bars in axes.containers for bar in bars]
        self.assertEqual(lefts, sorted(lefts))
        self.assertEqual([label.get_text() for label in axes.get_xticklabels()], ["1f1b", "interleaved"])
        self.assertIn("16 micro-batches", memory.title)

    def test_memory_is_compared_at_a_size_that_all_schedules_have(self):
        memory = self.charts([entry("1f1b", 4, m) for m in (4, 8, 10)] + [entry("zb-v", 4, m, virtual_stages=2) for m in (4, 8)])[1]
        self.assertIn("8 micro-batches", memory.title)
        self.assertEqual({row[0] for row in memory.rows}, {"1f1b", "zb-v"})

    def test_speed_is_drawn_over_micro_batches(self):
        (axes,) = self.charts(self.trained())[2].figure.axes
        self.assertEqual(self.drawn(axes)["1f1b"], ([4, 8, 16], [4000, 8000, 16000]))
        self.assertEqual(len(self.charts([entry("1f1b", 4, 8), entry("gpipe", 4, 8)])), 2)

    def test_without_training_there_are_simulated_points_and_micro_batches(self):
        bubble, memory = self.charts([entry("1f1b", 4, m, trained=False) for m in (4, 8)])
        (axes,) = bubble.figure.axes
        drawn = self.drawn(axes)
        self.assertEqual(drawn["1f1b, measured"], ([], []))
        self.assertEqual(bubble.rows[0], ("1f1b", 4, 1, 4, "42.86", "42.86", "+0.00", "-", "-", "-"))
        self.assertEqual([bar.get_height() for bar in memory.figure.axes[0].patches], [4, 3, 2, 1])
        self.assertEqual(memory.rows[0], ("1f1b", 0, 8, 4, "-"))
        self.assertNotIn("filled: measured", [text.get_text() for text in axes.get_legend().get_texts()])

    def test_without_a_closed_form_a_dotted_line_joins_the_simulated_points(self):
        entries = [entry("zb-h2", 4, 4, has_form=False), entry("zb-h2", 4, 8), entry("zb-h2", 4, 16)]
        entries += [entry("zb-v", 4, m, virtual_stages=2, has_form=False) for m in (4, 8)]
        bubble = self.charts(entries)[0]
        (axes,) = bubble.figure.axes
        drawn = self.drawn(axes)
        self.assert_points(drawn["zb-h2"], ([2, 4], [300 / 11, 300 / 19]))
        self.assert_points(drawn["zb-h2, simulated"], ([1, 2, 4], [300 / 7, 300 / 11, 300 / 19]))
        self.assert_points(drawn["zb-v"], ([1, 2], [300 / 11, 300 / 19]))
        strokes = {line.get_label(): line.get_linestyle() for line in axes.lines}
        self.assertEqual(strokes["zb-h2"], "-")
        self.assertNotEqual(strokes["zb-v"], "-")
        self.assertEqual((bubble.rows[0][4], bubble.rows[0][6], bubble.rows[0][8]), ("-", "-", "-"))

    def test_no_bubble_has_no_deviation(self):
        bubble = self.charts([{**entry("gpipe", 1, 4), "expected_fraction": 0.0, "bubble_fraction": 0.01}])[0]
        self.assertEqual(bubble.rows[0][7:9], ("1.00", "-"))

    def test_numbers_of_ranks_have_panels_and_stages_of_a_rank_lines(self):
        entries = [entry("interleaved", ranks, 8, virtual_stages=virtual_stages) for ranks in (8, 4) for virtual_stages in (2, 4)]
        charts = self.charts([*entries, entry("1f1b", 4, 8)])
        self.assertEqual([axes.get_title(loc="left") for axes in charts[0].figure.axes], ["4 ranks", "8 ranks"])
        four, eight = (self.drawn(axes) for axes in charts[0].figure.axes)
        self.assert_points(eight["interleaved, 4 virtual stages a rank, measured"], ([1], [1.25 * 100 * 7 / 39]))
        self.assertIn("1f1b", four)
        self.assertEqual(len(charts), 3)
        self.assertEqual([len(chart.rows) for chart in charts[1:]], [12, 16])

    def test_clocks_are_not_mixed(self):
        entries = [entry("1f1b", 4, m) for m in (4, 8)]
        charts = pipeline.charts(self.read(bench(entries), bench(entries, clock="wall")))
        self.assertEqual([chart.title.split(": ")[1] for chart in charts],
                         ["virtual time, alpha=0,beta=0"] * 3 + ["real time"] * 3)

    def test_the_program_draws_them_and_reports_them(self):
        (self.folder / "pipeline.json").write_text(json.dumps(bench(self.trained())))
        run_program(self.folder, "plot", "pipeline", "pipeline.json", "-o", "pipeline.png")
        for name in ("pipeline.png", "pipeline_2.png", "pipeline_3.png"):
            self.assertTrue((self.folder / name).read_bytes().startswith(b"\x89PNG"))
        page = report.text_of(results.read([self.folder / "pipeline.json"]), "title")
        self.assertIn("<h2>Pipeline: bubble and memory</h2>", page)
        self.assertIn("<h3>Speed of pipeline schedules: virtual time", page)
        for chart in self.charts(self.trained()):
            self.assertIn(f'aria-label="{html.escape(chart.alt)}"', page)
        self.assertIn("<td>+25.00</td>", page)

    def test_broken_files_are_refused_by_name(self):
        good = entry("1f1b", 4, 8)
        for change in ({"simulated_fraction": None}, {"ranks": 0.0}, {"ranks": "many"}, {"in_flight": [1, 2]},
                       {"peak_activation_bytes": [1]}, {"bubble_fraction": [1]}, {"micro_batches": 0.0}):
            with self.assertRaises(results.BadInput, msg=change):
                self.read(bench([{**good, **change}]))
        for key in ("simulated_fraction", "ranks", "micro_batches", "chunks", "in_flight", "name", "run_type"):
            with self.assertRaises(results.BadInput, msg=key):
                self.read(bench([{name: value for name, value in good.items() if name != key}]))
        with self.assertRaises(results.BadInput):
            self.read(bench([]))
        del good["simulated_fraction"]
        (self.folder / "broken.json").write_text(json.dumps(bench([good])))
        done = run_program(self.folder, "plot", "pipeline", "broken.json", status=2)
        self.assertIn("broken.json", done.stderr)
        self.assertNotIn("Traceback", done.stderr)


class Bubble(unittest.TestCase):
    def test_bars_are_the_four_figures_of_every_training(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            for schedule_name, flags in (("1f1b", []), ("zb-v", ["--recompute", "full"])):
                run_program(folder, "train", "pipeline", "--ranks", "2", "--micro-batches", "4", "--steps", "1", "--clock", "unit",
                            "--schedule", schedule_name, *flags, "--json", f"{schedule_name}.json")
            run_program(folder, "train", "serial", "--steps", "1", "--json", "serial.json")
            read = results.read([folder / f"{name}.json" for name in ("1f1b", "zb-v", "serial")])
        del read.trainings[1].data["bubble"]["expected_fraction"]
        (chart,) = bubble.charts(read)
        self.assertEqual(chart.rows, [("pipeline 1f1b 2 ranks", "20.00", "20.00", "20.00", "20.00"),
                                      ("pipeline zb-v recompute full 2 ranks", "-", "4.00", "4.00", "4.00")])
        widths = [bar.get_width() for bar in chart.figure.axes[0].patches]
        for width, expected in zip(widths, (20, 0, 20, 4, 20, 4, 20, 4), strict=True):
            self.assertAlmostEqual(width, expected, places=6)
        self.assertEqual(bubble.charts(results.Results()), [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
