"""Result files with wrong, huge, deep or missing values are refused in one line that names the file; none ends in a traceback.

python3 hostile_plots_test.py PROGRAM SOURCE_FOLDER

Only every tenth change of a file is tried, unless LOCKSTEP_CAMPAIGN=whole is in the environment.
"""

import contextlib
import copy
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from plots_setting import PROGRAM, SOURCE  # first: it adds the plots to the path

import plot
import results

GOLDEN = SOURCE / "tests" / "golden" / "tiny"
TRAIN = ["--model", GOLDEN / "config.json", "--data", GOLDEN / "tokens.bin", "--global-batch", "4", "--steps", "3",
         "--validation-fraction", "0.2"]
FILES = {
    "serial": ["train", "serial", *TRAIN, "--json"],
    "pipeline": ["train", "pipeline", "--ranks", "2", "--micro-batches", "2", *TRAIN, "--json"],
    "ps": ["train", "ps", "--ranks", "3", "--mode", "asp", *TRAIN, "--json"],
    "bench": ["bench", "all_reduce", "-b", "1K", "-e", "64K", "-f", "4", "-n", "2", "--json"],
    "repeated": ["bench", "all_reduce", "-b", "1K", "-e", "1K", "-n", "2", "--repetitions", "2", "--json"],
    "schedules": ["bench", "pipeline", "-p", "2", "-m", "2,4", "--schedule", "gpipe,1f1b", "--simulate", "--json"],
    "tensor": ["bench", "tp", "--ranks", "2", "--variant", "tp", "--recompute", "none", "--link", "nvlink", "--json"],
    "context": ["bench", "cp", "--simulate", "--ranks", "2,8", "--heads", "8", "--kv-heads", "2", "--lengths", "16", "--method",
                "ring-contiguous,ring-zig-zag,ulysses", "--json"],
    "context_error": ["bench", "cp", "--error", "--lengths", "16", "--ranks", "1,4", "--json"],
    "factorings": ["bench", "3d", "--ranks", "4", "--cp", "1", "--memory-limit", "8M", "--json"],
    "moe": ["bench", "moe", "--ranks", "4,8", "--per-token", "2", "--tokens", "64", "--skew", "even,zipf:1", "--link",
            "alpha=9us,beta=25GB/s,node=2,node-alpha=1us,node-beta=100GB/s", "--json"],
    "pairs": ["bench", "pairs", "--ranks", "3", "--clock", "unit", "--link", "hdr", "--json"],
    "schedule": ["schedule", "1f1b", "-p", "2", "-m", "2", "--json"],
    "contributions": ["contributions", "all_reduce", "--ranks", "2", "--json"],
    "history": ["history", "trend", "bench.json", "--json"],
    "search": ["plan", "search", "gpt2", "--gpus", "4", "--replay", "2", "--json"],
    "trace": ["bench", "all_reduce", "-b", "1K", "-e", "1K", "-n", "1", "-c", "0", "--clock", "unit", "--link", "hdr", "--trace"],
    "training_trace": ["train", "ddp", "--ranks", "2", *TRAIN, "--trace"],
}
SHARE = 1 if os.environ.get("LOCKSTEP_CAMPAIGN") == "whole" else 10
LARGE = 1e23
WRONG = [None, "word", -1, [], {"a": [None]}]


def places(value, place=()):
    """The places of all values in a file. Of a list, only the first items that differ in their keys."""
    yield place
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places(inner, (*place, key))
    elif isinstance(value, list):
        seen = set()
        for index, inner in enumerate(value):
            kind = (inner.get("ph"), tuple(inner)) if isinstance(inner, dict) else type(inner)
            if kind not in seen:
                seen.add(kind)
                yield from places(inner, (*place, index))


def at(data, place):
    for key in place:
        data = data[key]
    return data


def changed(data, place, value):
    data = copy.deepcopy(data)
    inner = at(data, place[:-1])
    if value is KeyError:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    return data


class HostilePlots(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.files = {}
        for name, words in FILES.items():
            path = cls.folder / f"{name}.json"
            subprocess.run([PROGRAM, *words, path], cwd=cls.folder, capture_output=True, check=True, timeout=200)
            cls.files[name] = json.loads(path.read_text())

    def write(self, text):
        path = self.folder / "changed.json"
        path.write_text(text)
        return path

    def said(self, main):
        """What a program says of its bad input; empty if it accepts it."""
        errors = io.StringIO()
        try:
            with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
                plot.run(main)
        except SystemExit as end:
            self.assertEqual(end.code, 2)
            self.assertEqual(errors.getvalue().count("\n"), 1, errors.getvalue())
        return errors.getvalue()

    def drawn(self, path):
        """Reads a file and makes its charts. Rendering them would take too long."""
        read = results.read([path])
        for kind in plot.KINDS.values():
            kind.charts(read)

    def test_files_are_accepted_as_they_are_written(self):
        for name in self.files:
            self.assertEqual(self.said(lambda: self.drawn(self.folder / f"{name}.json")), "")

    def test_changed_files_are_read_or_refused(self):
        tried = refused = 0
        changes = [(name, place, value) for name, data in self.files.items() for place in places(data)
                   for value in [KeyError] * bool(place) + WRONG]
        for name, place, value in changes[::SHARE]:
            with self.subTest(file=name, place=place, value=value):
                path = self.write(json.dumps(changed(self.files[name], place, value) if place else value))
                said = self.said(lambda path=path: results.read([path]))
                tried += 1
                refused += bool(said)
                if said:
                    self.assertIn("changed.json", said)
        self.assertGreater(tried, 3000 // SHARE)
        self.assertGreater(refused, 500 // SHARE)

    def test_large_values_are_drawn_or_refused(self):
        numbers = [(name, place) for name, data in self.files.items() for place in places(data)
                   if type(at(data, place)) in (int, float)]
        self.assertGreater(len(numbers), 500)
        for name, place in numbers[::SHARE]:
            with self.subTest(file=name, place=place):
                path = self.write(json.dumps(changed(self.files[name], place, LARGE)))
                self.said(lambda path=path: self.drawn(path))

    def test_values_of_wrong_types_are_named(self):
        for name, place, part in [
                ("serial", ("steps", 1, "loss"), "steps[1].loss is null, which stands for NaN or infinity"),
                ("serial", ("ranks", 0, "peak_bytes", "total"), "ranks[0].peak_bytes.total is null"),
                ("bench", ("benchmarks", 0, "p50_us"), "benchmarks[0].p50_us is null"),
                ("schedule", ("config", "ranks"), "config.ranks is null"),
                ("trace", ("traceEvents", 0, "pid"), "traceEvents[0].pid is null")]:
            path = self.write(json.dumps(changed(self.files[name], place, None)))
            self.assertIn(part, self.said(lambda path=path: self.drawn(path)))

    def test_only_variations_over_repetitions_may_be_null(self):
        """The program writes null where a counter is 0: its variation is 0 / 0."""
        entries = self.files["repeated"]["benchmarks"]
        nulls = {(entry.get("aggregate_name"), key) for entry in entries for key, value in entry.items() if value is None}
        self.assertEqual({kind for kind, _ in nulls}, {"cv"})
        self.assertLessEqual({("cv", "in_place"), ("cv", "wrong")}, nulls)
        for index, entry in enumerate(entries):
            for key in ("in_place", "model_us", "wrong", "p50_us", "bytes"):
                path = self.write(json.dumps(changed(self.files["repeated"], ("benchmarks", index, key), None)))
                part = "" if entry.get("aggregate_name") == "cv" else f"benchmarks[{index}].{key} is null"
                said = self.said(lambda path=path: self.drawn(path))
                self.assertTrue(part in said and bool(part) == bool(said), said)
            for key, value in (("in_place", "word"), ("p50_us", -1), ("name", None), ("run_type", None)):
                path = self.write(json.dumps(changed(self.files["repeated"], ("benchmarks", index, key), value)))
                self.assertIn(f"benchmarks[{index}].{key}", self.said(lambda path=path: self.drawn(path)))

    def test_huge_and_deep_values_are_refused(self):
        for text, part in [("[" * 100_000, "nested too deeply"), ('{"a": 1e999}', "the number 1e999 is out of range"),
                           ('{"a": NaN}', "NaN is no number"), ('{"a": ' + "9" * 4000 + "}", "out of range")]:
            path = self.write(text)
            self.assertIn(part, self.said(lambda path=path: self.drawn(path)))

    def test_one_rank_far_from_the_others_is_refused(self):
        events = self.files["trace"]["traceEvents"]
        last = next(i for i in reversed(range(len(events))) if events[i]["ph"] == "f")
        path = self.write(json.dumps(changed(self.files["trace"], ("traceEvents", last, "pid"), 100_000)))
        self.assertIn("a rank 100000 among 3 ranks", self.said(lambda: self.drawn(path)))

    def test_other_files_and_outputs_are_refused(self):
        pipe, loop = self.folder / "pipe.svg", self.folder / "loop.svg"
        subprocess.run(["mkfifo", pipe], check=True)
        loop.symlink_to(loop)
        good, far = str(self.folder / "serial.json"), str(self.folder / ("a" * 300 + ".svg"))
        self.assertIn("regular file", self.said(lambda: results.read([pipe])))
        for path in (str(pipe), far):
            self.assertIn("--output", self.said(lambda path=path: plot.plot("loss", [good], path)))
        self.assertIn("cannot read", self.said(lambda: results.read([loop])))
        self.assertIn("cannot read", self.said(lambda: results.read([far])))
        red = self.folder / "\x1b[31mred.json"
        self.assertIn(r"\x1b[31mred", self.said(lambda: results.read([red])))

    def test_names_and_texts_that_no_file_can_hold(self):
        good = json.dumps(self.files["serial"])
        for text, part in [(good[:-1] + ', "a": {"b": 1, "b": 2}}', 'the name "b" twice'), (good[:-1] + ', "a": "\\ud800"}', "surrogates"),
                           (good[:-1] + ', "a": ' + "[" * 32 + "]" * 32 + "}", "nested more than 32 deep")]:
            self.assertIn(part, self.said(lambda text=text: results.read([self.write(text)])))
        odd = self.folder / os.fsdecode(b"\xff\x1b[31m.json")
        odd.write_text(good)
        for words in (["plot", "loss", odd, self.folder / "serial.json", "--output", os.fsdecode(b"\xff\x1b.svg")],
                      ["report", odd, self.folder / "serial.json", "--output", os.fsdecode(b"\xff\x1b.html")]):
            done = subprocess.run([PROGRAM, *words], cwd=self.folder, capture_output=True, timeout=200)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(rb"\udcff\x1b", done.stdout)
            self.assertNotIn(b"\x1b", done.stdout + done.stderr)

    def test_a_link_stays(self):
        target, link = self.folder / "target.svg", self.folder / "link.svg"
        target.write_text("old")
        link.symlink_to("target.svg")
        self.said(lambda: plot.plot("loss", [str(self.folder / "serial.json")], str(link)))
        self.assertTrue(link.is_symlink() and target.read_text().startswith("<?xml"))

    def test_values_that_cannot_be_drawn_end_in_one_line(self):
        done = subprocess.run([PROGRAM, "report", self.write(json.dumps(changed(
            self.files["serial"], ("steps", 1, "loss"), LARGE))), "--output", "r.html"], cwd=self.folder, capture_output=True,
            text=True, timeout=200)
        self.assertNotIn("Traceback", done.stderr)
        self.assertEqual(self.said(lambda: 1 / 0).count("ZeroDivisionError"), 1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
