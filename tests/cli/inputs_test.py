"""Bad inputs and scarce resources end in one line that helps and exit status 2; help and suggestions.

python3 inputs_test.py PROGRAM
"""

import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import unittest

PROGRAM = pathlib.Path(sys.argv[1])
LIBRARIES = subprocess.run(["ldd", PROGRAM], capture_output=True, text=True, check=True).stdout
HAS_SANITIZER = "libasan" in LIBRARIES or "libtsan" in LIBRARIES
MOST = "2147483647"


class Inputs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(folder.name)
        self.addCleanup(folder.cleanup)

    def run_program(self, *words, **options):
        return subprocess.run([PROGRAM, *words], **{"cwd": self.path, "capture_output": True, "text": True, "timeout": 100,
                                                    **options})

    def refused(self, part, *words, **options):
        done = self.run_program(*words, **options)
        self.assertEqual(done.returncode, 2, f"{words}: {done.stdout[-300:]}{done.stderr}")
        self.assertIn(part, done.stderr, words)
        self.assertTrue(done.stderr.startswith("lockstep: ") and done.stderr.count("\n") == 1, done.stderr)

    def config(self, text):
        (self.path / "run.toml").write_text(text)
        return ["train", "serial", "--config", "run.toml"]

    def test_config_files_that_would_break_their_reader(self):
        self.refused("train.serial.steps has no value", *self.config("[train.serial]\nsteps=[]\n"))
        self.refused("train.serial.steps has no value", *self.config("[train.serial]\nsteps=\n"))
        self.refused("line 2: the list has no end", *self.config("[train.serial]\nsteps=[12\n"))
        self.refused("line 1: a name of more than 4 parts", *self.config("[" + "a." * 100_000 + "a]\n"))
        self.refused("line 2: a name of more than 4 parts", *self.config("[train]\n" + "a." * 100_000 + "a=1\n"))
        self.assertEqual(self.run_program(*self.config("[train.serial]\nsteps=[1]\nglobal-batch=1\n")).returncode, 0)

    def test_output_that_nobody_takes(self):
        words = [PROGRAM, "train", "serial", "--steps", "0"]
        self.assertEqual(subprocess.run(words, preexec_fn=lambda: os.close(2), timeout=100).returncode, 2)
        with open("/dev/full", "w") as full:
            self.assertEqual(subprocess.run(words, stderr=full, timeout=100).returncode, 2)
            for words in (["mesh", "--tp", "2"], ["bench", "all_reduce", "-e", "64", "-n", "1"], ["schedule", "--help"]):
                done = self.run_program(*words, capture_output=False, stdout=full, stderr=subprocess.PIPE)
                self.assertEqual((done.returncode, "No space left on device" in done.stderr), (2, True), words)

    @unittest.skipIf(HAS_SANITIZER, "sanitizers need the resources themselves")
    def test_small_limits(self):
        def limited(kind, most):
            return {"preexec_fn": lambda: resource.setrlimit(kind, (most, most))}

        train = ["train", "ddp", "--ranks", "2", "--steps", "1"]
        done = self.run_program(*train, **limited(resource.RLIMIT_STACK, 64 << 10))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.refused("raise the limit on a file's size (ulimit -f)", *train, "--json", "r.json",
                     **limited(resource.RLIMIT_FSIZE, 100))
        self.refused("a schedule of 1000000 ranks with 1 stages each and 40 micro-batches needs about 5.59 GiB", "schedule", "1f1b",
                     "-p", "1000000", "-m", "40", **limited(resource.RLIMIT_AS, 3 << 30))
        self.refused("this training needs about", *train, "--model", "gpt2", **limited(resource.RLIMIT_AS, 3 << 30))

    def test_schedules_too_large_to_be_shown(self):
        many = self.run_program("schedule", "1f1b", "-p", "20000", "-m", "2", "--messages")
        self.assertEqual(many.returncode, 0, many.stderr)
        self.assertEqual(many.stdout.count("... 19900 more ranks\n"), 3)  # in chart, messages and figures
        self.assertLess(len(many.stdout), 60_000)
        self.refused("--messages with 10002 actions of a rank", "schedule", "1f1b", "-p", "1", "-m", "5001", "--messages")
        self.refused("--plot with 200004 actions", "schedule", "1f1b", "-p", "2", "-m", "50001", "--plot", "s.svg")
        self.assertFalse((self.path / "s.svg").exists())

    def test_requests_that_no_machine_can_meet(self):
        for part, words in [
                ("this training needs about", ["train", "serial", "--global-batch", MOST]),
                ("this training needs about", ["train", "ps", "--global-batch", MOST]),
                ("this training needs about", ["train", "pipeline", "--global-batch", MOST, "--micro-batches", "4"]),
                ("100000 threads; 16384 are the most", ["train", "ddp", "--ranks", "100000", "--global-batch", "100000"]),
                ("100000 threads; 16384 are the most", ["train", "serial", "--threads", "100000"]),
                ("100000 threads; 16384 are the most", ["bench", "model", "--threads", "100000"]),
                ("-e 64G on 1000 ranks needs about 125 TiB", ["bench", "all_reduce", "--ranks", "1000", "-e", "64G"]),
                (f"{MOST} threads", ["bench", "all_reduce", "--ranks", MOST]),
                (f"virtual time of {MOST} ranks needs about 64 TiB",
                 ["bench", "all_reduce", "--ranks", MOST, "--clock", "unit", "--device", "none", "-e", "8"]),
                ("use 1 to 1000000", ["bench", "ps", "--workers", MOST])]:
            with self.subTest(words=words):
                self.refused(part, *words)

    def test_paths_that_lead_nowhere(self):
        (self.path / "loop").symlink_to("loop")
        for path, reason in [("loop", "Too many levels of symbolic links"), ("a" * 300, "File name too long")]:
            for words in (["train", "serial", "--data"], ["train", "serial", "--init"],
                          ["train", "serial", "--plan"], ["schedule", "--schedule-file"]):
                self.refused(reason, *words, path)
            for words in (["train", "serial", "--json"], ["train", "serial", "--save"], ["bench", "barrier", "--tune"],
                          ["schedule", "1f1b", "--json"]):
                self.refused("cannot write " + path, *words, path)
        self.refused(r"\x1b[31mred", "train", "serial", "--data", "\x1b[31mred")
        self.refused(r"\x1b[31mred", "train", "serial", "--\x1b[31mred")

    @unittest.skipIf(os.geteuid() != 0, "changes the user")
    def test_folders_without_permission(self):
        (self.path / "closed").mkdir(mode=0o700)
        self.path.chmod(0o755)
        for words in (["train", "serial", "--json"], ["train", "serial", "--data"], ["train", "serial", "--save"],
                      ["bench", "barrier", "--tune"], ["bench", "barrier", "--baseline"]):
            try:
                self.refused("Permission denied", *words, "closed/file", user=65534, group=65534, extra_groups=[])
            except PermissionError:
                self.skipTest("others cannot run the program here")

    def test_values_that_were_taken_for_others(self):
        self.refused("rank 4294967296", "train", "ddp", "--steps", "1", "--fault", "rank=4294967296,kind=throw")
        self.refused("--min-lr nan; use a finite number", "train", "serial", "--min-lr", "nan")
        self.refused("groups of -1 micro-batches", "schedule", "interleaved", "--group-size", "-1")
        self.refused("give a number", "bench", "barrier", "-a", "")
        virtual = ["bench", "barrier", "--clock", "unit", "--link"]
        for link in ("alpha=1e308s", "beta=1e-320GB/s", "beta=1e300"):
            self.refused("use at most 1e+15", *virtual, link)
        self.refused("use a bandwidth above 0", *virtual, "beta=0GB/s")
        self.assertEqual(self.run_program(*virtual, "beta=0", "-n", "1").returncode, 0)

    def test_flags_without_effect(self):
        for needs, words in [("--mode ssp", ["train", "ps", "--staleness", "2"]),
                             ("without --colocated", ["train", "ps", "--colocated", "--servers", "1"]),
                             ("--sequence-parallel", ["train", "tp", "--keep-gathered"]),
                             ("only interleaved", ["train", "pipeline", "--micro-batches", "2", "--group-size", "2"]),
                             ("--dropout above 0", ["plan", "ddp", "--dropout-streams", "megatron"]),
                             ("--validation-fraction above 0", ["train", "serial", "--eval-interval", "2"]),
                             ("--sample above 0", ["train", "serial", "--prompt", "x"]),
                             ("has its own shape", ["schedule", "--schedule-file", "f", "-p", "2"]),
                             ("choose one", ["bench", "all_reduce", "-f", "2", "-i", "64"])]:
            with self.subTest(words=words):
                self.refused(needs, *words)
        done = self.run_program("train", "sp", "--steps", "1", "--keep-gathered")  # sp splits the sequence itself
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_suggestions(self):
        for part, words in [("has no command 'allreduce'; did you mean all_reduce?", ["bench", "allreduce"]),
                            ("has no command 'trian'; did you mean train?", ["trian", "ddp", "--steps", "1"]),
                            ("has no command 'pipe'; did you mean pipeline?", ["train", "pipe"]),
                            ("has no command 'xyz'; choose one of serial, ddp", ["train", "xyz"]),
                            ("has no flag --stpes; did you mean --steps?", ["train", "ddp", "--stpes", "5"]),
                            ("--ranks stands before 'ddp'; write it after", ["train", "--ranks", "2", "ddp"]),
                            ("has no flag --steps_; did you mean --steps?", ["train", "ddp", "--steps_=5"]),
                            ("has no flag --frobnicate; lockstep train ddp --help", ["train", "ddp", "--frobnicate"]),
                            ("lockstep train needs a command: serial, ddp", ["train"]),
                            ("lockstep needs a command: train", []),
                            ("does not expect 'x'", ["mesh", "x"]),
                            ("lab check has no flag --jsn", ["lab", "check", "1", "--jsn", "x"]),
                            ("--ranks two; use a whole number", ["train", "ddp", "--ranks", "two"]),
                            ("--ranks 2.5; use a whole number", ["train", "ddp", "--ranks", "2.5"]),
                            ("--ranks -99999999999; use a number closer to zero", ["train", "ddp", "--ranks", "-99999999999"]),
                            ("--ranks needs a value", ["train", "ddp", "--ranks"]),
                            ("lockstep compare needs new", ["compare", "old.json"])]:
            with self.subTest(words=words):
                self.refused(part, *words)

    def commands(self, *words):
        """All commands, and the help of each."""
        help_text = self.run_program(*words, "--help").stdout
        yield words, help_text
        for name in re.findall(r"^  ([\w-]+) ", help_text.partition("Subcommands:")[2].partition("Examples:")[0], re.MULTILINE):
            if name not in ("plot", "report"):
                yield from self.commands(*words, name)

    def test_help(self):
        seen = []
        for words, text in self.commands():
            seen.append(" ".join(words))
            self.assertIn("Examples:\n  lockstep ", text, words)
            flags = re.findall(r"^  (-\S+)(.*(?:\n {30,}.*)?)", text, re.MULTILINE)
            for flag, rest in flags:
                self.assertRegex(rest, r"\s[a-z0-9].* ", f"{words}: {flag} has no description")
            longest = max(text.splitlines(), key=len)
            self.assertLess(len(longest), 130, longest)
        self.assertLessEqual({"train ddp", "plan 3d", "bench all_reduce", "bench tp", "bench sharded", "schedule", "compare"}, set(seen))
        for technique, first in [("ddp", "data parallelism"), ("pipeline", "pipeline"), ("ps", "parameter server"), ("tp", "tensor")]:
            groups = re.findall(r"^([a-z].*):$", self.run_program("train", technique, "--help").stdout, re.MULTILINE)
            self.assertTrue(groups[0].startswith(first), groups)
            self.assertEqual(groups[-2:], ["ranks and time", "files"])

    def test_examples_in_the_help_run(self):
        chosen = {"train ddp", "compare", "schedule", "mesh", "doctor", "contributions"}
        if not HAS_SANITIZER:
            chosen |= {"train", "plan", "train 3d", "bench all_reduce", "bench broadcast", "bench ps", "bench pipeline", "bench tp",
                       "bench sharded", "bench attention", "bench cp"}
        for words, text in self.commands():
            if " ".join(words) not in chosen:
                continue
            for example in re.findall(r"^  lockstep (.*)", text.partition("Examples:")[2], re.MULTILINE):
                # What is measured twice may differ; a mistake gives a wrong result.
                allowed = {("compare",): (0, 3), ("contributions",): (0, 1)}.get(words, (0,))
                done = self.run_program(*example.split())
                self.assertIn(done.returncode, allowed, f"{example}: {done.stderr}")

    def test_techniques_have_the_ranks_they_need(self):
        for technique in ("ddp", "zero", "fsdp", "ps", "pipeline", "tp", "sp", "cp", "ring-attention", "ulysses", "3d"):
            done = self.run_program("train", technique, "--steps", "1", "--global-batch", "2")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f"{technique}: 2 ranks over threads", done.stdout)
            self.assertIn(f"{technique} on 2 ranks", self.run_program("plan", technique).stdout)
        self.assertIn("cp on 6 ranks", self.run_program("plan", "cp", "--ulysses", "2", "--ring", "3", "--sequence-length", "48").stdout)
        self.assertIn("serial: 1 rank over", self.run_program("train", "serial", "--steps", "1").stdout)

    def test_presets_have_the_defaults_of_their_trainings(self):
        for technique, pipeline in (("bloom-like", "1f1b, 2 stages"), ("megatron-like", "interleaved, 4 stages")):
            done = self.run_program("train", technique, "--steps", "1")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f"{technique}: 8 ranks over threads", done.stdout)
            planned = self.run_program("plan", technique, "--ranks", "16", "--json", f"{technique}.json").stdout
            self.assertIn("tp 2, cp 1, dp 4, pp 2", planned)
            self.assertIn(pipeline, planned)
            self.assertIn(f"{technique} on 16 ranks", self.run_program("plan", "--plan", f"{technique}.json").stdout)
            self.assertIn("tp 1, cp 1, dp 4, pp 4", self.run_program("plan", technique, "--ranks", "16", "--tp", "1", "--pp", "4", "--schedule",
                                                                      "gpipe").stdout)
        self.assertIn("--no-sequence-parallel", self.run_program("train", "megatron-like", "--help").stdout)

    def test_documents(self):
        (self.path / "short.txt").write_text("".join("x" * (7 * i % 19) + "\n\n" for i in range(400)))
        done = self.run_program("train", "cp", "--ranks", "4", "--documents", "--layout", "balanced", "--data", "short.txt", "--steps", "2",
                                "--global-batch", "4", "--json", "r.json")
        self.assertEqual(done.returncode, 0, done.stderr)
        result = json.loads((self.path / "r.json").read_text())
        layouts = {record["layout"]: record for record in result["layouts"]}
        self.assertEqual(list(layouts), ["contiguous", "zig-zag", "striped", "balanced"])
        self.assertLessEqual(max(layouts["balanced"]["pairs"]), max(layouts["striped"]["pairs"]))
        for record in layouts.values():
            self.assertAlmostEqual(record["imbalance"], max(record["pairs"]) * 4 / sum(record["pairs"]))
            self.assertIn(f" {record['layout']} {record['imbalance']:.3f}", done.stdout)
        for step in result["steps"]:
            self.assertLess(step["targets"], 4 * 64)
        (self.path / "one.txt").write_text("one line\n" * 100)
        self.refused("one.txt: no document ends: no line is empty", "train", "serial", "--documents", "--data", "one.txt")
        self.refused("--documents with --device none", "train", "ddp", "--documents", "--device", "none")
        self.refused("--layout balanced without --documents", "plan", "cp", "--layout", "balanced")

    def test_equal_ranks_are_folded(self):
        lines = self.run_program("train", "3d", "--ranks", "8", "--tp", "2", "--pp", "2", "--mesh-order", "pp-dp-tp", "--steps",
                                 "1").stdout.splitlines()
        theory = [line for line in lines if line.startswith(("sent_", "received_", "peak_"))]
        without_ranks = [line[:36] + line[49:] for line in theory]
        self.assertEqual(len(theory), len(set(without_ranks)))
        self.assertRegex("\n".join(theory), r"\n\S+ +[0-9],[0-9],[0-9],[0-9] +")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]])
