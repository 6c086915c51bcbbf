"""lockstep history: 30 nights of results, the night of a change, what a history refuses, its picture and its page.

python3 history_test.py PROGRAM SOURCE_FOLDER
"""

import datetime
import json
import os
import pathlib
import random
import resource
import subprocess
import sys
import tempfile
import unittest

PROGRAM, SOURCE = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
UNIT = ["--clock", "unit", "--link", "10gbe", "--ranks", "4", "-b", "1K", "-e", "64K", "-f", "8", "-n", "4", "--repetitions", "2"]
NIGHTS, CHANGED = 30, 13
FIRST = datetime.datetime(2026, 10, 1, 2, tzinfo=datetime.timezone.utc)


def date(night):
    return (FIRST + datetime.timedelta(days=night)).strftime("%Y-%m-%d")


def has_matplotlib():
    return subprocess.run(["/usr/bin/env", "python3", "-c", "import matplotlib"], capture_output=True).returncode == 0 or subprocess.run(
        ["/usr/bin/python3", "-c", "import matplotlib"], capture_output=True).returncode == 0


class History(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        path = pathlib.Path(folder.name) / "base.json"
        for words in (["bench", "all_reduce", *UNIT, "--algorithm", "ring", "--json", path],
                      ["train", "serial", "--steps", "5", "--global-batch", "2", "--sequence-length", "8", "--json", path.with_name("serial.json")]):
            subprocess.run([PROGRAM, *words], check=True, capture_output=True, timeout=120)
        cls.base, cls.training = (json.loads(path.with_name(name).read_text()) for name in ("base.json", "serial.json"))

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name)

    def history(self, *words, status=0, **options):
        done = subprocess.run([PROGRAM, "history", *words], cwd=self.path, capture_output=True, text=True, timeout=120, **options)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        if status == 2:
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        return done

    def night(self, night, factor=1.0, noise=0.01, name=None, change=lambda file, environment: None):
        """Writes a result of that night, on the wall clock: each row has noise of its own."""
        file = json.loads(json.dumps(self.base))
        dice = random.Random(night)
        file["context"]["lockstep.clock"] = "wall"
        environment = json.loads(file["context"]["lockstep.environment"])
        environment.update(time=(FIRST + datetime.timedelta(days=night)).strftime("%Y-%m-%dT%H:%M:%SZ"), host="a", commit="1")
        change(file, environment)
        file["context"]["lockstep.environment"] = json.dumps(environment)
        of_row = {}
        for entry in file["benchmarks"]:
            if "samples_us" in entry:
                scale = factor * of_row.setdefault(entry["run_name"], dice.gauss(1, noise))
                entry["samples_us"] = [sample * scale for sample in entry["samples_us"]]
        name = name or f"{night:02}.json"
        (self.path / name).write_text(json.dumps(file))
        return name

    def nights(self, changed=CHANGED, factor=1.1, **options):
        return [self.night(night, factor if night >= changed else 1, **options) for night in range(NIGHTS)]

    def test_a_slowdown_is_found_at_its_night(self):
        def host(file, environment):
            if environment["time"] >= date(CHANGED):
                environment.update(host="b", settings={"NCCL_ALGO": "Tree"})
        self.history("add", "nights", *self.nights(change=host))
        done = self.history("trend", "nights", "--json", "trend.json", status=3)
        self.assertIn(f"# {NIGHTS} nights, {date(0)} to {date(NIGHTS - 1)}, 6 rows\n", done.stdout)
        self.assertIn("6 slower, 0 faster, 0 otherwise, of 6 rows\n", done.stdout)
        self.assertIn(f"  {date(CHANGED)}: host: a before, b now\n", done.stdout)
        self.assertIn("settings.NCCL_ALGO: not recorded before, Tree now", done.stdout)
        trend = json.loads((self.path / "trend.json").read_text())
        self.assertEqual(trend["schema"], "lockstep.history/1")
        for row in trend["rows"]:
            with self.subTest(row=row["name"]):
                self.assertEqual(len(row["points"]), NIGHTS)
                self.assertEqual(len(row["changes"]), 1)
                self.assertLessEqual(abs(row["changes"][0]["night"] - CHANGED), 1)
                self.assertAlmostEqual(row["changes"][0]["change"], 0.1, delta=0.02)
        shown = self.history("show", "nights").stdout
        self.assertIn(f"# {date(CHANGED)}: host: a before, b now\n", shown)
        self.assertRegex(shown, rf"all_reduce/ring/\S+ +{NIGHTS} .* \+\d+\.\d %  {date(CHANGED)[:8]}")

    def test_noise_and_a_bad_night_are_no_change(self):
        files = self.nights(factor=1, noise=0.03)
        files[20] = self.night(20, 1.4)
        done = self.history("trend", *files)
        self.assertIn("0 slower, 0 faster, 6 otherwise, of 6 rows\n", done.stdout)
        self.assertEqual(done.stdout.count(f"  outliers: {date(20)} "), 6)
        self.assertIn(f"{date(20)}: an outlier in 6 of 6 rows\n", done.stdout)

    def test_the_base_window_accepts_a_change(self):
        self.history("add", "nights", *self.nights())
        self.history("trend", "nights", "--base", f"{date(CHANGED + 2)}..{date(CHANGED + 8)}")
        self.history("trend", "nights", "--base", f"{date(0)}..{date(5)}", status=3)
        self.history("trend", "nights", "--effect", "0.3")
        for base in ("yesterday", "..", "2031-01-01..2031-01-09"):
            self.assertIn("--base", self.history("trend", "nights", "--base", base, status=2).stderr)
        self.assertIn("--effect", self.history("trend", "nights", "--effect", "-1", status=2).stderr)

    def test_add_keeps_every_byte_and_knows_what_it_has(self):
        name = self.night(0)
        content = (self.path / name).read_bytes()
        self.assertIn(f"{name}: added as nights/2026-10-01T02-00-00Z-", self.history("add", "nights", name).stdout)
        kept, = (self.path / "nights").iterdir()
        self.assertEqual(kept.read_bytes(), content)
        # The same file again, also under another name, and twice at once.
        (self.path / "copy.json").write_bytes(content)
        for again in (name, "copy.json", f"nights/{kept.name}"):
            self.assertIn(f"already in the history as nights/{kept.name}", self.history("add", "nights", again).stdout)
        self.history("add", "nights", self.night(1), "01.json")
        # Another result of the same time.
        self.history("add", "nights", self.night(0, 1.01, name="other.json"))
        self.assertEqual(len(list((self.path / "nights").iterdir())), 3)
        self.assertEqual(kept.read_bytes(), content)
        self.assertIn("2026-10-01T02:00:00Z", self.history("trend", "nights").stdout, "two nights of one date")
        self.assertIn("hold the same result", self.history("trend", name, "copy.json", status=2).stderr)

    def test_all_files_are_checked_before_one_is_added(self):
        good, damaged = self.night(0), self.path / "damaged.json"
        damaged.write_bytes((self.path / good).read_bytes()[:1000])
        self.assertIn("damaged.json", self.history("add", "nights", good, damaged, status=2).stderr)
        self.assertFalse((self.path / "nights").exists())
        self.history("add", "nights", good)
        before = {path.name: path.read_bytes() for path in (self.path / "nights").iterdir()}
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        self.assertIn("ulimit -f", self.history("add", "nights", self.night(1), status=2, preexec_fn=limit).stderr)
        self.assertEqual({path.name: path.read_bytes() for path in (self.path / "nights").iterdir()}, before, "nothing half, nothing lost")

    def test_what_does_not_belong_together_is_refused(self):
        self.history("add", "nights", self.night(0))
        held = sorted((self.path / "nights").iterdir())
        training = json.loads(json.dumps(self.training))
        (self.path / "serial.json").write_text(json.dumps(training))
        training["config"]["technique"] = "ddp"
        training["environment"]["time"] = "2026-10-02T02:00:00Z"
        (self.path / "ddp.json").write_text(json.dumps(training))

        def renamed(file, _):
            for entry in file["benchmarks"]:
                entry["name"], entry["run_name"] = (entry[key].replace("/ring/", "/direct/") for key in ("name", "run_name"))
        self.night(1, name="direct.json", change=renamed)
        self.night(1, name="dirty.json", change=lambda file, _: file["context"].update({"lockstep.buffers": "dirty"}))
        self.night(1, name="timeless.json", change=lambda file, environment: (environment.pop("time"), file["context"].pop("date")))
        self.night(1, name="sometime.json", change=lambda _, environment: environment.update(time="last night"))
        (self.path / "list.json").write_text("[]")
        for file, reason in {"serial.json": "has schema lockstep.train/1, but nights/", "direct.json": "no row matches", "dirty.json": "has buffers dirty",
                             "timeless.json": "does not say when it was measured", "sometime.json": "its time 'last night' is no time",
                             "list.json": "not a JSON object", "missing.json": "No such file"}.items():
            with self.subTest(file=file):
                said = self.history("add", "nights", file, status=2).stderr
                self.assertIn(reason, said)
                self.assertIn(file, said)
                self.history("trend", "nights", file, status=2)
                self.history("show", "nights", file, status=2)
        self.assertIn("no row matches", self.history("trend", "serial.json", "ddp.json", status=2).stderr)
        self.assertEqual(sorted((self.path / "nights").iterdir()), held)

    def test_a_damaged_or_empty_history_is_refused(self):
        (self.path / "empty").mkdir()
        (self.path / "empty" / "notes.txt").write_text("none yet")
        for command in ("show", "trend"):
            self.assertIn("empty holds no file that ends with .json", self.history(command, "empty", status=2).stderr)
            self.assertIn("nowhere", self.history(command, "nowhere", status=2).stderr)
        self.history("add", "nights", self.night(0), self.night(1))
        kept = sorted((self.path / "nights").iterdir())
        whole = kept[0].read_bytes()
        for damage in (b"", whole[:500], whole.replace(b'"samples_us"', b'"samples_us": "x", "y"', 1), b"\xff" * 100):
            kept[0].write_bytes(damage)
            for words in (["show", "nights"], ["trend", "nights"], ["add", "nights", self.night(2)]):
                self.assertIn(kept[0].name, self.history(*words, status=2).stderr)
        self.assertEqual(sorted((self.path / "nights").iterdir()), kept)
        self.assertIn("Not a directory", self.history("add", "02.json", self.night(3), status=2).stderr)
        self.assertIn("is the history", self.history("trend", "nights", "--json", "nights/x.json", status=2).stderr)
        self.assertIn(".html", self.history("trend", "nights", "--html", "x.htm", status=2).stderr)

    def test_wrong_results_of_the_last_night_are_status_1(self):
        def wrong(file, environment):
            if environment["time"].startswith(date(NIGHTS - 1)):
                file["benchmarks"][0]["wrong"] = 3
        for command in ("show", "trend"):
            done = self.history(command, *self.nights(factor=1, change=wrong), status=1)
            self.assertRegex(done.stdout, "# WRONG: 29.json: all_reduce/.*: 3 elements are wrong")
            self.assertIn("1 results of the last night were wrong", done.stderr)

    def test_times_are_compared_whatever_their_zone(self):
        early = self.night(0, change=lambda _, environment: environment.update(time="2026-10-02T01:00:00+02:00"))
        late = self.night(1, change=lambda _, environment: environment.update(time="2026-10-02T00:00:00Z"))
        self.history("trend", late, early, "--json", "trend.json")
        nights = json.loads((self.path / "trend.json").read_text())["nights"]
        self.assertEqual([night["time"] for night in nights], ["2026-10-01T23:00:00Z", "2026-10-02T00:00:00Z"])

    def test_files_of_google_benchmark(self):
        for night in range(12):
            entry = {"name": "BM/1", "run_name": "BM/1", "run_type": "iteration", "real_time": (12 if night > 5 else 10) + night % 3 / 100, "time_unit": "ms"}
            context = {"date": f"2026-10-{night + 1:02}T03:00:00+02:00", "host_name": "a" if night < 6 else "b"}
            (self.path / f"{night}.json").write_text(json.dumps({"context": context, "benchmarks": [entry]}))
        done = self.history("trend", *(f"{night}.json" for night in range(12)), status=3)
        self.assertRegex(done.stdout, r"2026-10-07: 1 slower, .* BM/1\n  2026-10-07: host: a before, b now\n")

    def test_real_virtual_times_never_change(self):
        for night in range(4):
            subprocess.run([PROGRAM, "bench", "all_reduce", *UNIT, "--algorithm", "ring", "--json", f"{night}.json"], cwd=self.path, check=True,
                           capture_output=True, timeout=120)
        self.assertIn("0 slower, 0 faster, 6 otherwise", self.history("trend", *(f"{night}.json" for night in range(4))).stdout)
        slow = json.loads((self.path / "3.json").read_text())
        for entry in slow["benchmarks"]:
            if "samples_us" in entry:
                entry["samples_us"] = [sample * 1.0001 for sample in entry["samples_us"]]
        environment = json.loads(slow["context"]["lockstep.environment"])
        environment["time"] = "2099-01-01T00:00:00Z"
        slow["context"]["lockstep.environment"] = json.dumps(environment)
        (self.path / "4.json").write_text(json.dumps(slow))
        self.assertIn("6 slower", self.history("trend", *(f"{night}.json" for night in range(5)), status=3).stdout)

    def test_the_picture_and_the_page(self):
        if not has_matplotlib():
            self.skipTest("no python3 with matplotlib")
        self.history("add", "nights", *self.nights())
        done = self.history("trend", "nights", "--plot", "trend.svg", "--html", "trend.html", status=3)
        self.assertIn("<svg", (self.path / "trend.svg").read_text())
        self.assertIn("6 of 6 rows are slower.", done.stdout)
        page = (self.path / "trend.html").read_text()
        for part in ("6 of 6 rows are slower than before, on 30 nights from 2026-10-01 to 2026-10-30.", "<svg", date(CHANGED)):
            self.assertIn(part, page)
        self.assertFalse(list(self.path.glob("lockstep-*.json")))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
