"""lockstep compare: its exit status, its tables, and the input it refuses.

python3 compare_test.py PROGRAM
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = pathlib.Path(sys.argv[1])
UNIT = ["--clock", "unit", "--link", "10gbe", "--ranks", "4", "-b", "1K", "-e", "64K", "-f", "8", "-n", "4", "--repetitions", "2"]


class Compare(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)
        self.addCleanup(self.folder.cleanup)

    def run_program(self, *words, status=0):
        done = subprocess.run([PROGRAM, *words], cwd=self.path, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done

    def measured(self, name, change=lambda file: None):
        if not (self.path / "base.json").exists():
            self.run_program("bench", "all_reduce", *UNIT, "--algorithm", "ring", "--json", "base.json")
        file = json.loads((self.path / "base.json").read_text())
        change(file)
        (self.path / name).write_text(json.dumps(file))
        return name

    def times(self, factor):
        def change(file):
            for place, entry in enumerate(file["benchmarks"]):
                if "samples_us" in entry:
                    entry["samples_us"] = [sample * factor * (1 + i / 1000) for i, sample in enumerate(entry["samples_us"])]
        return change

    def test_a_slowdown_is_exit_status_3(self):
        old = self.measured("old.json", self.times(1))
        self.assertIn("0 slower, 0 faster, 6 the same, of 6", self.run_program("compare", old, old).stdout)
        done = self.run_program("compare", old, self.measured("slow.json", self.times(1.2)), "--markdown", "table.md", status=3)
        self.assertIn("6 slower", done.stdout)
        self.assertEqual((self.path / "table.md").read_text().count("| SLOWER |"), 6)
        self.assertIn("6 faster", self.run_program("compare", old, self.measured("fast.json", self.times(0.8))).stdout)
        self.run_program("compare", old, "slow.json", "--effect", "0.5")

    def test_warns_of_other_environments_and_refuses_other_settings(self):
        old = self.measured("old.json")

        def other_processor(file):
            environment = json.loads(file["context"]["lockstep.environment"])
            environment["processor"] = "another"
            file["context"]["lockstep.environment"] = json.dumps(environment)
        self.assertIn("processor", self.run_program("compare", old, self.measured("p.json", other_processor)).stdout)

        def other_clock(file):
            file["context"]["lockstep.clock"] = "wall"
        self.assertIn("lockstep.clock", self.run_program("compare", old, self.measured("c.json", other_clock), status=2).stderr)

        def other_schema(file):
            file["context"]["lockstep.schema"] = "lockstep.bench/0"
        self.assertIn("lockstep.schema", self.run_program("compare", old, self.measured("s.json", other_schema), status=2).stderr)

    def test_training_runs(self):
        words = ["train", "serial", "--steps", "8", "--global-batch", "2", "--sequence-length", "8"]
        self.run_program(*words, "--json", "a.json")
        file = json.loads((self.path / "a.json").read_text())
        for name, scale in {"a.json": 1, "b.json": 2}.items():  # not the measured times, which vary too much on a busy machine
            for step in file["steps"]:
                step["seconds"] = scale * (1 + step["step"] / 1000)
            (self.path / name).write_text(json.dumps(file))
        self.assertIn("train/serial/threads/ranks:1/step", self.run_program("compare", "a.json", "b.json", status=3).stdout)
        self.run_program("compare", "a.json", self.measured("old.json"), status=2)

    def test_files_of_google_benchmark(self):
        entries = [{"name": "BM/1", "run_name": "BM/1", "run_type": "iteration", "real_time": 10 + i / 10, "time_unit": "ms"} for i in range(6)]
        (self.path / "g.json").write_text(json.dumps({"context": {}, "benchmarks": entries}))
        for entry in entries:
            entry["real_time"] *= 1.5
        (self.path / "h.json").write_text(json.dumps({"context": {}, "benchmarks": entries}))
        self.assertIn("BM/1", self.run_program("compare", "g.json", "h.json", status=3).stdout)

    def test_bad_input(self):
        old = self.measured("old.json")
        for name, content in {"empty": "", "list": "[]", "text": "hello", "schema": '{"schema": "lockstep.train/9"}',
                              "broken": '{"benchmarks": [{"run_type": 3}]}', "train": '{"schema": "lockstep.train/1"}'}.items():
            with self.subTest(name=name):
                (self.path / name).write_text(content)
                self.assertIn(name, self.run_program("compare", old, name, status=2).stderr)
        self.run_program("compare", old, "missing.json", status=2)
        self.run_program("compare", old, status=2)
        self.run_program("compare", old, old, "--rate", "0", status=2)
        self.run_program("compare", old, old, "--effect", "-1", status=2)
        self.run_program("compare", old, old, "--markdown", "no/such/folder/x.md", status=2)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
