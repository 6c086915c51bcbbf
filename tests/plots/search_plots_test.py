"""The pictures and the page of a search for a plan show the file's numbers; texts of any origin stay texts; a file that does not hold
together is refused.

python3 search_plots_test.py PROGRAM SOURCE_FOLDER
"""

import contextlib
import copy
import html
import io
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from plots_setting import PROGRAM, SOURCE  # first: it adds the plots to the path

from matplotlib.colors import to_hex

import chart
import plot
import report
import results
import search

HOSTILE = "<script>alert('x')</script> & \"$\\frac{1}$ -->"
MODEL = {"model_type": "gpt2", "n_layer": 96, "n_head": 96, "n_embd": 12288, "n_positions": 2048, "vocab_size": 50257}


def changed(value):
    """The file with a hostile text after each of its texts, except where only some words are allowed."""
    if isinstance(value, dict):
        return {key: inner if key in ("schema", "verdict") and inner in ("lockstep.search/1", "fits", "tight") else changed(inner)
                for key, inner in value.items()}
    if isinstance(value, list):
        return [changed(inner) for inner in value]
    return value + HOSTILE if isinstance(value, str) else value


class SearchPlots(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        (cls.folder / "<b>&.json").write_text(json.dumps(MODEL))
        sheet = (SOURCE / "parallel" / "planner" / "clusters" / "a100-dgx.json").read_text()
        (cls.folder / "<i>$a$.json").write_text(sheet)
        cls.run_search("--json", "search.json", "--plot", "search.svg", "--html", "search.html")
        cls.data = json.loads((cls.folder / "search.json").read_text())
        cls.results = results.read([cls.folder / "search.json"])
        cls.waterfall, cls.lengths, cls.scatter = search.charts(cls.results)
        cls.page = (cls.folder / "search.html").read_text()

    @classmethod
    def run_search(cls, *words, status=0):
        done = subprocess.run([PROGRAM, "plan", "search", "<b>&.json", "--cluster", "./<i>$a$.json", "--profile", "megatron-2021", "--gpus", "1024",
                               "--global-batch", "1536", "--why-not", "tp=16,pp=4", *words], cwd=cls.folder, capture_output=True, text=True,
                              timeout=200)
        assert done.returncode == status, f"{words} ended with {done.returncode}:\n{done.stderr}"
        return done.stderr

    def read(self, data):
        path = self.folder / "changed.json"
        path.write_text(json.dumps(data))
        return results.read([path])

    def test_the_bars_are_the_parts_of_the_best_step(self):
        best = self.data["plans"][0]
        parts = [(name, seconds) for name, seconds in best["waterfall"].items() if seconds]
        axes = self.waterfall.figure.axes[0]
        self.assertEqual([label.get_text() for label in axes.get_yticklabels()], [*(name.replace("_", " ") for name, _ in parts), "step"])
        texts = [text.get_text() for text in axes.texts]
        begin = 0
        for bar, text, (name, seconds) in zip(axes.patches, texts, parts):
            self.assertAlmostEqual(bar.get_x(), begin, 9)
            self.assertAlmostEqual(bar.get_width(), seconds, 9)
            self.assertEqual(to_hex(bar.get_facecolor()).upper(), search.KINDS[search.PARTS[name][1]].upper())
            self.assertEqual(text, f"{seconds:.3g} s, {100 * seconds / best['seconds']:.1f} %")
            begin += seconds
        step = axes.patches[len(parts)]
        self.assertEqual((step.get_x(), step.get_width()), (0, best["seconds"]))
        self.assertAlmostEqual(begin, best["seconds"], 9)
        self.assertEqual(self.waterfall.rows[-1][-1], f"{best['model_tflops_per_gpu']:.1f}")
        self.assertAlmostEqual(float(self.waterfall.rows[0][-1]) * parts[0][1], best["model_tflops_per_gpu"] * best["seconds"], delta=1)

    def test_parts_of_every_step_have_words(self):
        """Also of the steps that have parts that this one lacks."""
        self.assertEqual(list(search.PARTS), list(self.data["plans"][0]["waterfall"]))

    def test_a_part_below_0_leads_back(self):
        data = copy.deepcopy(self.data)
        best = data["plans"][0]
        change = best["waterfall"]["imbalance"] + 0.1
        for key in ("waterfall", "parts"):
            best[key]["imbalance"] -= change
            best[key]["bubble"] += change
        drawn = search.charts(self.read(data))[0].figure.axes[0]
        place = [label.get_text() for label in drawn.get_yticklabels()].index("imbalance")
        bar, text = drawn.patches[place], drawn.texts[place]
        self.assertAlmostEqual(bar.get_width(), -0.1, 9)
        self.assertAlmostEqual(text.xy[0], bar.get_x(), 9)

    def cells(self, axes):
        """{(tp, pp): seconds} of an image."""
        columns = [int(label.get_text().split()[1]) for label in axes.get_xticklabels()]
        rows = [int(label.get_text().split()[1]) for label in axes.get_yticklabels()]
        image = axes.images[0].get_array()
        drawn = {(tp, pp): float(image[y][x]) for x, tp in enumerate(columns) for y, pp in enumerate(rows) if not image.mask[y][x]}
        return drawn, columns, rows

    def test_each_cell_is_the_fastest_plan_of_its_lengths(self):
        axes = self.lengths.figure.axes[0]
        drawn, columns, rows = self.cells(axes)
        found = {(cell["tp"], cell["pp"]): cell for cell in self.data["by_tp_pp"]}
        self.assertEqual(drawn, {place: cell["seconds"] for place, cell in found.items() if cell["fits"]})
        texts = {(columns[int(text.get_position()[0])], rows[int(text.get_position()[1])]): text.get_text() for text in axes.texts}
        self.assertEqual(texts, {place: f"{cell['seconds']:.4g} s\n{cell['memory'] / 1e9:.1f} GB" if cell["fits"] else
                                 f"≥ {cell['memory'] / 1e9:.1f} GB" for place, cell in found.items()})
        grey = {(columns[round(patch.get_x() + 0.5)], rows[round(patch.get_y() + 0.5)]) for patch in axes.patches if patch.get_alpha()}
        self.assertEqual(grey, {place for place, cell in found.items() if not cell["fits"]})
        self.assertGreater(len(grey), 0)
        outline, = (patch for patch in axes.patches if not patch.get_fill())
        best = self.data["plans"][0]["plan"]
        self.assertEqual((columns[round(outline.get_x() + 0.48)], rows[round(outline.get_y() + 0.46)]), (best["tp"], best["pp"]))
        self.assertEqual(found[best["tp"], best["pp"]]["seconds"], min(drawn.values()))

    def test_each_point_is_a_replayed_plan(self):
        axes, = self.scatter.figure.axes
        lines = {line.get_label(): line for line in axes.lines}
        memory = [max(stage["total"] for stage in plan["memory"]) / 1e9 for plan in self.data["plans"]]
        plans = list(zip(memory, (plan["seconds"] for plan in self.data["plans"]), (plan["plan"]["tp"] for plan in self.data["plans"])))
        for tp in {tp for _, _, tp in plans}:
            drawn = lines[f"tp {tp}"]
            self.assertEqual(list(zip(drawn.get_xdata(), drawn.get_ydata())), [(x, y) for x, y, own in plans if own == tp])
        limit = self.data["memory_limit"] / 1e9
        self.assertEqual(list(lines[f"limit {limit:.1f} GB"].get_xdata()), [limit] * 2)
        frontier = lines["fastest with at\nmost this memory"]
        self.assertEqual(list(zip(frontier.get_xdata(), frontier.get_ydata())), sorted(
            (x, y) for x, y, _ in plans if not any((a <= x and b < y) or (a < x and b <= y) for a, b, _ in plans)))
        label, = axes.texts
        self.assertEqual(label.xy, plans[0][:2])
        self.assertEqual(label.get_text().replace("\n", " "), f"{self.data['plans'][0]['name']} {plans[0][1]:.4g} s")

    def test_the_page_holds_the_numbers(self):
        sections = {own.title: own for own in report.sections(self.results)}
        self.assertEqual(list(sections), ["The fastest plan", "The best plans", "Tensor and pipeline lengths", "Time over memory",
                                          "Memory of each stage", "Why not another plan", "What if", "How far to trust it"])
        best = self.data["plans"][0]
        for text in (best["name"], *(f"{seconds:.4g} s" for seconds in (best["seconds"], *best["interval"]))):
            self.assertIn(text, sections["The fastest plan"].finding)
        self.assertIn(f"{100 * (self.data['plans'][1]['seconds'] / best['seconds'] - 1):.1f} % longer", sections["The best plans"].finding)
        rows = re.findall(r"<tr><td class=\"word\">(tp .*?)</td><td>(.*?)</td><td>(.*?)</td>", sections["The best plans"].body)
        self.assertEqual(rows, [(plan["name"], f"{plan['seconds']:.4g}", f"{plan['seconds'] / best['seconds']:.3f}")
                                for plan in self.data["plans"][:10]])
        for stage in best["memory"]:
            self.assertIn(f"<tr><td>{stage['stage']}</td><td>{stage['parameters'] / 1e9:.1f}</td>", sections["Memory of each stage"].body)
        for entry in self.data["why_not"] + self.data["neighbours"]:
            self.assertIn(html.escape(entry["verdict"]), sections["Why not another plan"].body)
        for entry in self.data["what_if"]:
            self.assertIn(f">{entry['change']}</td><td>{entry['seconds']:.4g}</td><td>{100 * entry['saved']:.1f}<", sections["What if"].body)
        for line in self.data["advice"]:
            self.assertIn(html.escape(line), sections["What if"].body)
        self.assertIn(f"at most {100 * self.data['closed_form_error']:.1f} % away", sections["How far to trust it"].finding)
        self.assertIn("5.0 % either way", sections["How far to trust it"].finding)
        for entry in self.data["rejected"]:
            self.assertIn(f"{entry['plans']}</td>", sections["How far to trust it"].body)
        for own in sections.values():
            self.assertIn(html.escape(own.finding), self.page)

    def test_the_page_needs_no_other_file(self):
        self.assertEqual(self.page.count("<svg role"), 3)
        addresses = re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?([^"')\s>]+)""", self.page)
        self.assertTrue(addresses)
        self.assertEqual([address for address in addresses if not address.startswith(("#", "data:"))], [])
        self.assertNotIn("<script", self.page)
        self.assertIn("prefers-color-scheme: dark", self.page)
        drawn = "".join(re.findall(r"<svg role.*?</svg>", self.page, re.DOTALL))
        for ink in (chart.INK, chart.SOFT, chart.GRID, chart.PAPER):
            self.assertNotIn(ink, drawn)
        self.assertNotIn('id="appendix"', self.page)
        self.assertNotIn("Verdict", self.page)

    def test_names_stay_text(self):
        self.assertIn("<h1>Plans of &lt;b&gt;&amp;.json on 1024 GPUs of ./&lt;i&gt;$a$.json</h1>", self.page)
        for tag in ("<b>", "<i>"):
            self.assertNotIn(tag, self.page)
        hostile = self.read(changed(self.data))
        text = report.text_of(hostile, HOSTILE)
        self.assertNotIn("<script", text)
        self.assertEqual(text.count("-->"), text.count("<!--"))
        self.assertIn(html.escape(self.data["advice"][0] + HOSTILE), text)
        with contextlib.redirect_stdout(io.StringIO()):
            plot.plot("search", [str(self.folder / "changed.json")], str(self.folder / "hostile.svg"))

    def test_the_other_pictures_lie_next_to_the_first(self):
        for name in ("search.svg", "search_2.svg", "search_3.svg"):
            self.assertIn("<svg", (self.folder / name).read_text())

    def test_a_search_of_which_nothing_fits_or_only_one_is_known_is_drawn(self):
        data = copy.deepcopy(self.data)
        for plan in data["plans"] + data["by_tp_pp"]:
            plan["fits"] = False
        self.assertIn("with a plan that fits: 0 of", search.charts(self.read(data))[1].alt)
        self.assertIn("No other plan that was replayed fits.", report.text_of(self.read(data), "x"))
        data = copy.deepcopy(self.data)
        del data["plans"][1:]
        data["by_tp_pp"] = [cell for cell in data["by_tp_pp"] if cell["seconds"] == data["plans"][0]["seconds"]]
        for key in ("why_not", "neighbours", "what_if", "advice", "rejected"):
            data[key] = []
        self.assertIn("is the best itself", search.charts(self.read(data))[2].alt)
        self.assertNotIn("Why not another plan", report.text_of(self.read(data), "x"))

    def test_two_searches_on_one_page_are_told_apart(self):
        self.read(self.data)
        text = report.text_of(results.read([self.folder / "search.json", self.folder / "changed.json"]), "x")
        for title in ("The fastest plan of search", "The fastest plan of changed"):
            self.assertIn(f"<h2>{title}</h2>", text)

    def test_what_does_not_hold_together_is_refused(self):
        def refused(change):
            data = copy.deepcopy(self.data)
            change(data)
            with self.assertRaises(results.BadInput) as caught:
                self.read(data)
            self.assertIn("changed.json", str(caught.exception))
        refused(lambda data: data.update(plans=[]))
        refused(lambda data: data.update(by_tp_pp=[]))
        refused(lambda data: data["by_tp_pp"].append(data["by_tp_pp"][0]))
        refused(lambda data: data.update(memory_limit=0))
        refused(lambda data: data["plans"][3].update(seconds=0))
        refused(lambda data: data["plans"][3].update(memory=[]))
        refused(lambda data: data["plans"][3]["interval"].pop())
        refused(lambda data: data["plans"][0]["waterfall"].update(tp=7))
        refused(lambda data: data["plans"][0]["parts"].update(tp=7))
        refused(lambda data: data["plans"][0]["memory"][2].update(activations=0))
        refused(lambda data: data["why_not"][0].pop("verdict"))

    def test_other_endings_are_refused_before_the_search(self):
        self.assertIn("its name must end with .html", self.run_search("--html", "page.htm", status=2))
        self.assertIn("its name must end with .svg, .png or .pdf", self.run_search("--plot", "a.gif", status=2))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
