"""lockstep compare: its exit status, its tables, and the input it refuses.

python3 compare_test.py PROGRAM SOURCE_FOLDER
"""

import csv
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

PROGRAM, SOURCE = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
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

    def times(self, factor, clock="wall"):
        """Times that vary a little, as on a quiet machine, times the factor."""
        def change(file):
            file["context"]["lockstep.clock"] = clock
            for entry in file["benchmarks"]:
                if "samples_us" in entry:
                    noise = (1, 1.002, 1.001, 1.003)
                    entry["samples_us"] = [sample * factor * noise[i % 4] for i, sample in enumerate(entry["samples_us"])]
        return change

    def test_wrong_results_are_not_the_same(self):
        def wrong(file):
            for entry in file["benchmarks"][:1]:
                entry["wrong"] = 3
            file["benchmarks"].append({**file["benchmarks"][-1], "name": "lost", "run_name": "lost", "run_type": "iteration",
                                       "error_occurred": True, "error_message": "a \x1b[31mrank"})
        right = self.measured("right.json")
        self.measured("wrong.json", wrong)
        for files in ((right, "wrong.json"), ("wrong.json", right), ("wrong.json", "wrong.json")):
            done = self.run_program("compare", *files, "--markdown", "table.md", status=1)
            self.assertRegex(done.stdout, r"# WRONG: wrong.json: all_reduce/\S+: 3 elements are wrong\n")
            self.assertIn(r"# WRONG: wrong.json: lost: an error: a \x1b[31mrank", done.stdout)
            self.assertRegex(done.stdout, r"\nall_reduce/.* WRONG\n")
            self.assertIn(f"{4 if files[0] == files[1] else 2} of the compared results were wrong", done.stderr)
            self.assertIn("WRONG", (self.path / "table.md").read_text())
        self.run_program("bench", "all_reduce", *UNIT, "--algorithm", "ring", "--baseline", "wrong.json", status=1)
        self.run_program("train", "ddp", "--ranks", "2", "--steps", "3", "--clock", "unit", "--compute-time", "1", "--json", "t.json")

        def changed(change):
            file = json.loads((self.path / "t.json").read_text())
            change(file)
            (self.path / "u.json").write_text(json.dumps(file))
            return self.run_program("compare", "t.json", "u.json", status=1).stdout
        self.run_program("compare", "t.json", "t.json")

        def count(file):
            line = next(line for line in file["theory"] if line["exact"])
            line["measured"] += 1

        def loss(file):
            file["steps"][1]["loss"] = None
        self.assertRegex(changed(count), r"# WRONG: u.json: train/ddp/\S+: \w+ of rank 0: \S+ instead of \S+\n")
        self.assertIn("step 1: its loss is not a number", changed(loss))

    def test_names_in_a_file_reach_no_terminal_and_no_page_as_they_are(self):
        def name(file):
            for entry in file["benchmarks"]:
                for key in ("name", "run_name"):
                    entry[key] = "\x1b[31m<script>|\u009b" + entry[key]
            file["context"]["lockstep.\x1bsetting"] = "\x07"
            file["context"]["host_name"] = "\x1b]0;"
            file["context"]["lockstep.environment"] = json.dumps({"host": "\x1b[2J", "\x1bkey": {"\x1binner": "<script>"}})
        self.measured("base.json")
        self.measured("named.json", name)

        def other(file):
            name(file)
            file["context"]["lockstep.environment"] = json.dumps({"host": "other \x9b"})
        self.measured("other.json", other)
        for files, status in ((("named.json", "named.json"), 0), (("named.json", "other.json"), 0), (("named.json", "base.json"), 2)):
            done = self.run_program("compare", *files, "--markdown", "table.md", status=status)
            for said in (done.stdout, done.stderr, (self.path / "table.md").read_text()):
                self.assertFalse([c for c in said if c != "\n" and (ord(c) < 32 or 126 < ord(c) < 160)], said)
            self.assertNotIn("<script>", (self.path / "table.md").read_text())
        self.assertIn("\\x1b[31m<script>|", self.run_program("compare", "named.json", "named.json").stdout)

    def environment(self, change):
        """Changes the recorded environment."""
        def in_file(file):
            environment = json.loads(file["context"]["lockstep.environment"])
            change(environment)
            file["context"]["lockstep.environment"] = json.dumps(environment)
        return in_file

    def context(self, key, value):
        def in_file(file):
            file["context"][key] = value
        return in_file

    def test_a_slowdown_is_exit_status_3(self):
        old = self.measured("old.json", self.times(1))
        self.assertIn("0 slower, 0 faster, 6 the same, 0 unclear, of 6", self.run_program("compare", old, old).stdout)
        done = self.run_program("compare", old, self.measured("slow.json", self.times(1.2)), "--markdown", "table.md", status=3)
        self.assertIn("6 slower", done.stdout)
        self.assertEqual((self.path / "table.md").read_text().count("| SLOWER |"), 6)
        self.assertIn("6 faster", self.run_program("compare", old, self.measured("fast.json", self.times(0.8))).stdout)
        self.run_program("compare", old, "slow.json", "--effect", "0.5")

    def test_rows_match_however_often_they_were_measured(self):
        """The documented --baseline: the old result has repetitions, the new one has none."""
        words = ["bench", "all_reduce", "-b", "64K", "-e", "1M", "-f", "4", "-w", "1"]
        self.run_program(*words, "-n", "5", "--repetitions", "5", "--json", "old.json")
        done = subprocess.run([PROGRAM, *words, "-n", "4", "--baseline", "old.json"], cwd=self.path, capture_output=True, text=True, timeout=120)
        self.assertIn(done.returncode, (0, 3), done.stderr)  # the measured times do not matter
        self.assertRegex(done.stdout, r"\d slower, \d faster, \d the same, \d unclear, of 6\n")
        self.assertNotIn("only in one of the files", done.stdout)

    def test_nothing_matched_is_an_error(self):
        old = self.measured("old.json")
        self.run_program("bench", "all_reduce", *UNIT, "--algorithm", "binomial_tree", "--json", "other.json")
        done = self.run_program("compare", old, "other.json", status=2)
        for words in ("no row matches: 6 rows in other.json, such as", "; 6 in old.json, such as", "binomial_tree", "all_reduce/ring"):
            self.assertIn(words, done.stderr)
        self.assertNotIn("SLOWER", done.stdout)
        self.run_program("bench", "all_reduce", *UNIT, "--algorithm", "binomial_tree", "--baseline", old, status=2)
        self.run_program("bench", "all_reduce", *UNIT, "--algorithm", "ring,binomial_tree", "--json", "both.json")
        self.assertIn("6 of these are only in one of the files", self.run_program("compare", old, "both.json").stdout)

    def test_a_result_without_times_compares_nothing(self):
        self.run_program("bench", "all_reduce", "--clock", "unit", "-b", "1K", "-e", "1K", "-n", "1", "--json", "zero.json")
        self.assertIn("no measured time", self.run_program("compare", "zero.json", "zero.json", status=2).stderr)

    def test_every_difference_of_the_environment_is_shown(self):
        old = self.measured("old.json", self.times(1))
        facts = {"processor": "another", "cores": 999, "memory_bytes": 1.0, "host": "elsewhere", "system": "Plan 9", "cuda_driver": 13000,
                 "nccl": 22800, "libc": "2.99", "compiler": "other", "mpi": "Open MPI 9", "settings": {"NCCL_ALGO": "Tree"},
                 "clock_governor": "powersave", "gpu_driver": "580", "blas": "another", "onednn": "9.9",
                 "network": {"mlx5_0/1": "400 Gb/sec (4X NDR)"}, "gpu": {"name": "H200", "driver": 13000}}
        shown = {"settings": "settings.NCCL_ALGO", "network": "network.mlx5_0/1", "gpu": "gpu.name"}
        for fact, value in facts.items():
            with self.subTest(fact=fact):
                new = self.measured("new.json", lambda file: (self.times(1)(file), self.environment(lambda e: e.update({fact: value}))(file)))
                self.assertIn(f"# warning: the environments differ: {shown.get(fact, fact)}: ", self.run_program("compare", old, new).stdout)
                self.assertIn("the environments differ in", self.run_program("compare", old, new, "--strict", status=2).stderr)
        for fact in ("time", "commit", "version"):
            new = self.measured("new.json", lambda file: (self.times(1)(file), self.environment(lambda e: e.update({fact: "1"}))(file)))
            done = self.run_program("compare", old, new, "--strict")
            self.assertEqual(f"# note: {fact}: " in done.stdout, fact != "time")
        # A measured link is a note; a given one decides the times.
        new = self.measured("new.json", lambda file: (self.times(1)(file), self.context("lockstep.link", "alpha=9us")(file)))
        self.assertIn("# note: link: ", self.run_program("compare", old, new, "--strict").stdout)

    def test_other_hardware_is_never_the_same(self):
        gpu = {"name": "NVIDIA H100", "memory_bytes": 1}
        old = self.measured("old.json", lambda file: (self.times(1)(file), self.environment(lambda e: e.update(gpu=gpu))(file)))
        changes = {"gpu": self.environment(lambda e: e.update(gpu={**gpu, "name": "NVIDIA H200"})),
                   "network": self.environment(lambda e: e.update(gpu=gpu, network={"mlx5_0/1": "200 Gb/sec (4X HDR)"})),
                   "device": lambda file: (self.environment(lambda e: e.update(gpu=gpu))(file), self.context("lockstep.device", "cuda")(file))}
        self.assertIn("6 the same", self.run_program("compare", old, old).stdout)
        for name, change in changes.items():
            with self.subTest(name=name):
                new = self.measured("new.json", lambda file: (self.times(1)(file), change(file)))
                done = self.run_program("compare", old, new)
                self.assertIn("0 the same, 6 unclear", done.stdout)
                self.assertIn("the hardware differs, so no row is called the same", done.stdout)
        for clock in ("unit", "cpu"):  # the link is the simulated hardware
            old = self.measured("old.json", self.times(1, clock))
            new = self.measured("new.json", lambda file: (self.times(1, clock)(file), self.context("lockstep.link", "alpha=9us")(file)))
            self.assertIn("0 the same", self.run_program("compare", old, new).stdout)

    def test_what_the_samples_cannot_tell_is_unclear(self):
        def noisy(shift):
            def change(file):
                file["context"]["lockstep.clock"] = "wall"
                for entry in file["benchmarks"]:
                    if "samples_us" in entry:
                        entry["samples_us"] = [(1000, 30, 900, 35)[(i + shift) % 4] for i, _ in enumerate(entry["samples_us"])]
            return change
        done = self.run_program("compare", self.measured("old.json", noisy(0)), self.measured("new.json", noisy(1)))
        self.assertIn("0 the same, 6 unclear", done.stdout)
        self.assertIn("unclear, within ", done.stdout)

    def test_virtual_time_is_compared_exactly(self):
        old = self.measured("old.json", self.context("lockstep.clock", "unit"))

        def later(file):
            for entry in file["benchmarks"]:
                if "/bytes:8192/" in entry["name"] and "samples_us" in entry:
                    entry["samples_us"] = [sample * 1.00001 for sample in entry["samples_us"]]
        done = self.run_program("compare", old, self.measured("new.json", later), status=3)
        self.assertIn("2 slower, 0 faster, 4 the same", done.stdout)
        self.assertIn("+1e-03 %", done.stdout)
        words = ["bench", "all_reduce", "--clock", "unit", "--link", "10gbe", "-b", "1K", "-e", "1M", "-f", "4", "--algorithm", "ring"]
        self.run_program(*words, "-n", "1", "--json", "once.json")
        self.run_program(*words, "-n", "7", "--repetitions", "2", "--json", "often.json")
        self.assertIn("0 slower, 0 faster, 12 the same, 0 unclear", self.run_program("compare", "once.json", "often.json").stdout)

    def test_another_choice_of_auto_is_reported(self):
        def chose(algorithm):
            def change(file):
                for entry in file["benchmarks"]:
                    entry["name"], entry["run_name"] = (entry[key].replace("/ring/", "/auto/") for key in ("name", "run_name"))
                    entry["label"] = algorithm
            return change
        done = self.run_program("compare", self.measured("old.json", chose("ring")), self.measured("new.json", chose("direct")))
        self.assertEqual(done.stdout.count("auto chose ring before, direct now"), 6)
        self.assertNotIn("auto chose", self.run_program("compare", "old.json", "old.json").stdout)

    def test_sizes_sort_as_numbers(self):
        old = self.measured("old.json")
        lines = self.run_program("compare", old, old).stdout.splitlines()
        sizes = [int(part[6:]) for line in lines for part in line.split("/") if part.startswith("bytes:")]
        self.assertEqual(sizes, [1024, 1024, 8192, 8192, 65536, 65536])

    def test_the_baseline_is_not_written_over(self):
        old = self.measured("old.json")
        words = ["bench", "all_reduce", *UNIT, "--algorithm", "ring", "--baseline", old]
        before = (self.path / old).read_bytes()
        self.run_program(*words, "--json", old, status=2)
        self.assertEqual((self.path / old).read_bytes(), before)
        # Nor under another name.
        (self.path / "link.json").symlink_to(old)
        self.run_program(*words, "--json", "link.json", status=2)
        self.assertEqual((self.path / old).read_bytes(), before)

    def test_other_settings_are_refused(self):
        old = self.measured("old.json")
        for key, value in (("clock", "wall"), ("buffers", "dirty"), ("average", "0"), ("operations_per_iteration", "3")):
            with self.subTest(key=key):
                new = self.measured("new.json", self.context(f"lockstep.{key}", value))
                self.assertIn(f"new.json has {key} {value}, but old.json has ", self.run_program("compare", old, new, status=2).stderr)
        new = self.measured("new.json", self.context("lockstep.schema", "lockstep.bench/0"))
        self.assertIn("lockstep.bench/0", self.run_program("compare", old, new, status=2).stderr)

    def test_a_result_tells_its_command_and_host(self):
        self.measured("old.json")
        context = json.loads((self.path / "base.json").read_text())["context"]
        self.assertEqual(context["lockstep.command"], "lockstep bench all_reduce " + " ".join(UNIT) + " --algorithm ring --json base.json")
        self.assertEqual(json.loads(context["lockstep.environment"])["host"], os.uname().nodename)
        self.assertNotIn("library_build_type", context)
        self.run_program("train", "serial", "--steps", "1", "--global-batch", "2", "--sequence-length", "8", "--json", "a b.json")
        self.assertEqual(json.loads((self.path / "a b.json").read_text())["command"],
                         "lockstep train serial --steps 1 --global-batch 2 --sequence-length 8 --json 'a b.json'")

    def test_a_percentile_needs_samples(self):
        for iterations, keys in ((9, set()), (10, {"p90_us"}), (100, {"p90_us", "p99_us"})):
            self.run_program("bench", "all_reduce", *UNIT[:6], "-b", "1K", "-e", "1K", "-n", str(iterations), "--json", "p.json")
            entries = json.loads((self.path / "p.json").read_text())["benchmarks"]
            for entry in entries:
                self.assertEqual({"p90_us", "p99_us"} & set(entry), keys)
                self.assertIn("p50_us", entry)

    def test_several_results_are_compared_with_the_first(self):
        files = [self.measured("old.json", self.times(1)), self.measured("same.json", self.times(1)), self.measured("slow.json", self.times(1.2))]
        done = self.run_program("compare", *files, "--markdown", "table.md", status=3)
        for part in ("same.json compared with old.json:\n", "slow.json compared with old.json:\n", "6 slower, 0 faster", "0 slower, 0 faster, 6 the same"):
            self.assertIn(part, done.stdout)
        self.assertIn("## slow.json\n\n| measurement |", (self.path / "table.md").read_text())
        self.run_program("compare", *files[:2])
        self.run_program("compare", *files, "missing.json", status=2)
        wrong = self.measured("wrong.json", lambda file: (self.times(1)(file), file["benchmarks"][0].update(wrong=3)))
        self.run_program("compare", *files, wrong, status=1)
        other = self.measured("other.json", lambda file: (self.times(1)(file), self.environment(lambda e: e.update(host="elsewhere"))(file)))
        self.run_program("compare", *files[:2], other, "--strict", status=2)

    def test_formats(self):
        """JSON, CSV and JUnit XML of the same comparisons, each read by another's reader, hold the table's rows and verdicts."""
        def mixed(file):
            self.times(1.2)(file)
            sizes = {"bytes:1024": 1 / 1.2, "bytes:8192": 1}
            for entry in file["benchmarks"]:
                scale = next((scale for size, scale in sizes.items() if size in entry["name"]), 0.5)
                if "samples_us" in entry:
                    entry["samples_us"] = [sample * scale for sample in entry["samples_us"]]
            file["benchmarks"] = [entry for entry in file["benchmarks"] if "bytes:65536/in_place:1" not in entry["name"]]

        def hostile(file):
            mixed(file)
            file["benchmarks"].append({**file["benchmarks"][0], "name": 'a,"b"<&\x1b/verdict:1', "run_name": 'a,"b"<&\x1b/verdict:1'})
            file["benchmarks"][-1]["wrong"] = 2
        old, new, odd = self.measured("old.json", self.times(1)), self.measured("new.json", mixed), self.measured("odd.json", hostile)
        formats = ["--json", "c.json", "--csv", "c.csv", "--junit", "c.xml"]
        self.run_program("compare", old, new, odd, *formats, status=1)
        found = json.loads((self.path / "c.json").read_text())
        self.assertEqual((found["schema"], found["old"], found["effect"]), ("lockstep.compare/1", "old.json", 0.05))
        verdicts = [row["verdict"] for row in found["comparisons"][0]["rows"]]
        self.assertEqual(sorted(verdicts), sorted(["same", "same", "slower", "slower", "faster", "gone"]))
        with open(self.path / "c.csv", newline="") as file:
            lines = list(csv.DictReader(file))
        flat = [(one["new"], row) for one in found["comparisons"] for row in one["rows"]]
        self.assertEqual(len(lines), len(flat))
        self.assertEqual(len({tuple(line[key] for key in ("file", "measurement", "ranks", "bytes", "in_place", "type")) for line in lines}), len(lines))
        for line, (name, row) in zip(lines, flat):
            self.assertEqual((line["file"], line["verdict"]), (name, row["verdict"]))
            for key in ("old_us", "new_us", "change", "q", "within"):
                self.assertEqual(float(line[key]) if line[key] else None, row.get(key), (key, row))
        self.assertEqual(lines[0]["measurement"], "all_reduce/ring/virtual")
        self.assertIn('a,"b"<&\\x1b/verdict:1', [line["measurement"] for line in lines], "verdict is a column of its own")
        suites = xml.etree.ElementTree.parse(self.path / "c.xml").getroot()
        self.assertEqual([suite.get("name") for suite in suites], ["new.json", "odd.json"])
        for suite, one in zip(suites, found["comparisons"]):
            cases = suite.findall("testcase")
            outcomes = {"failure": suite.findall("testcase/failure"), "skipped": suite.findall("testcase/skipped")}
            self.assertEqual(int(suite.get("tests")), len(cases))
            self.assertEqual(int(suite.get("failures")), len(outcomes["failure"]))
            self.assertEqual(int(suite.get("skipped")), len(outcomes["skipped"]))
            self.assertEqual(len(cases), len(one["rows"]) + 1, "and whether results are right")
            self.assertEqual(len({(case.get("classname"), case.get("name")) for case in cases}), len(cases))
            self.assertEqual(len(outcomes["failure"]), sum(row["verdict"] == "slower" for row in one["rows"]) + bool(one["wrong"]))
            self.assertEqual(len(outcomes["skipped"]), sum(row["verdict"] in ("gone", "new") for row in one["rows"]))
        self.assertIn("2 elements are wrong", suites[1].find("testcase/failure").get("message"))
        for flag, name in zip(formats[::2], formats[1::2]):
            self.assertIn(f"cannot write {old}", self.run_program("compare", old, new, flag, old, status=2).stderr)
            self.assertIn("another output names too", self.run_program("compare", old, new, flag, name, "--markdown", name, status=2).stderr)

    def test_plot(self):
        old = self.measured("old.json")
        self.assertIn("must end with", self.run_program("compare", old, old, "--plot", "x.gif", status=2).stderr)
        done = subprocess.run([PROGRAM, "compare", old, old, "--plot", "x.svg"], cwd=self.path, capture_output=True, text=True, timeout=120)
        if "no python3 with matplotlib" in done.stderr:
            self.skipTest("no python3 with matplotlib")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("<svg", (self.path / "x.svg").read_text())

    def test_the_measurement_of_false_alarms(self):
        """In virtual time there are none, and every slowdown is found."""
        script = SOURCE / "bench" / "false_alarms.py"
        done = subprocess.run([sys.executable, script, PROGRAM, "--sweeps", "2", "--rounds", "2", *UNIT[:-2], "--algorithm", "ring"], cwd=self.path,
                              capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        for line in ("false alarms: 0 of 2 sweeps, 0 of 12 rows", "all rows 10 % slower: found in 2 of 2 sweeps, 12 of 12 rows",
                     "one row 10 % slower: found in 2 of 2 sweeps"):
            self.assertIn(line, done.stdout)

    def test_programs_in_turn(self):
        script = SOURCE / "bench" / "in_turn.py"
        def compared(*words, status):
            done = subprocess.run([sys.executable, script, *words], cwd=self.path, capture_output=True, text=True, timeout=120)
            self.assertEqual(done.returncode, status, done.stdout + done.stderr)
            return done
        order = self.path / "order"
        for name, factor in ("old", 1), ("new", 1.5):
            (self.path / name).write_text(f"""#!{sys.executable}
import json, subprocess, sys
if sys.argv[1] == "bench":
    open({str(order)!r}, "a").write("{name[0]}")
status = subprocess.run([{str(PROGRAM)!r}, *sys.argv[1:]]).returncode
if sys.argv[1] == "bench" and status == 0:
    file = json.load(open(sys.argv[-1]))
    for entry in file["benchmarks"]:
        if "samples_us" in entry:
            entry["samples_us"] = [sample * {factor} for sample in entry["samples_us"]]
    json.dump(file, open(sys.argv[-1], "w"))
sys.exit(status)
""")
            (self.path / name).chmod(0o755)
        words = ["all_reduce", *UNIT[:-2], "--algorithm", "ring"]
        done = compared("--rounds", "3", "--out", "both", "./old", "./new", *words, status=3)
        self.assertIn("6 slower, 0 faster, 0 the same, 0 unclear, of 6", done.stdout)
        self.assertNotIn("in pairs", done.stdout, "virtual times are compared exactly")
        self.assertEqual(order.read_text(), "onnoon")
        entries = json.loads((self.path / "both" / "old.json").read_text())["benchmarks"]
        self.assertEqual([entry["repetition_index"] for entry in entries if entry["run_name"] == entries[0]["run_name"]], list(range(6)))
        self.assertEqual({entry["repetitions"] for entry in entries}, {6})
        self.assertIn("6 slower", self.run_program("compare", "both/old.json", "both/new.json", status=3).stdout)
        self.assertIn("0 slower", compared("--rounds", "1", "./old", "./old", *words, status=0).stdout)
        # Pairs tell a change of the program from that of the machine.
        for name, factor in ("old", 1), ("new", 1.1):
            file = json.loads((self.path / "both" / f"{name}.json").read_text())
            file["context"]["lockstep.clock"] = "wall"
            for entry in file["benchmarks"]:
                state = 1 + entry["repetition_index"] // 3
                entry["samples_us"] = [factor * state * (100 + entry["repetition_index"] % 2) for _ in entry["samples_us"]]
            (self.path / f"{name}.json").write_text(json.dumps(file))
        done = self.run_program("compare", "old.json", "new.json", status=3)
        self.assertIn("# note: measured in turn: samples are compared in pairs", done.stdout)
        self.assertIn("6 slower", done.stdout)
        file["context"]["lockstep.in_turn"] = "another time"
        (self.path / "new.json").write_text(json.dumps(file))
        self.assertIn("0 slower", self.run_program("compare", "old.json", "new.json").stdout)
        self.assertIn("./missing: No such file", compared("./old", "./missing", *words, status=2).stderr)
        self.assertIn("did you mean all_reduce", compared("./old", "./old", "all_reduc", status=2).stderr)
        said = compared("--out", "order/both", "./old", "./old", *words, status=2).stderr
        self.assertIn("--out order/both: Not a directory", said)
        self.assertIn("name an operation", compared("./old", "./old", status=2).stderr)

    def test_training_runs(self):
        words = ["train", "serial", "--steps", "8", "--global-batch", "2", "--sequence-length", "8"]
        self.run_program(*words, "--json", "a.json")
        file = json.loads((self.path / "a.json").read_text())
        for name, scale in {"a.json": 1, "b.json": 2}.items():  # not the measured times, which vary too much on a busy machine
            for step in file["steps"]:
                step["seconds"] = scale * (1 + step["step"] % 4 / 1000)
            (self.path / name).write_text(json.dumps(file))
        self.assertIn("train/serial/threads/ranks:1/step", self.run_program("compare", "a.json", "b.json", status=3).stdout)
        self.run_program("compare", "a.json", self.measured("old.json"), status=2)

    def test_files_of_google_benchmark(self):
        entries = [{"name": "BM/1", "run_name": "BM/1", "run_type": "iteration", "real_time": 10 + i % 3 / 10, "time_unit": "ms"} for i in range(6)]
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
