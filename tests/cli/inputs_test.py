"""Bad inputs and scarce resources end in one line that helps and exit status 2; help and suggestions.

python3 inputs_test.py PROGRAM
"""

import json
import os
import pathlib
import re
import resource
import struct
import subprocess
import sys
import tempfile
import unittest

import processes

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

    def test_config_files_take_what_the_command_line_takes(self):
        """Each file is refused, and so is the same value on the command line."""
        for text, part in [("lr=0,001", "--lr 0,001; use a number"), ("lr=0.1 0.2", "--lr 0.1 0.2; use a number"),
                           ("lr=[0.1, 0.2]", "has 2 values"), ("steps=2\nsteps=3", "line 3: train.serial.steps is given twice"),
                           ("steps=2\nlr=0.1\n[train]\nserial.steps=3", "line 5: train.serial.steps is given twice"),
                           ("prompt=\"a\"\nsample=1\nprompt='b'", "given twice"), ("steps=2.5", "use a whole number"),
                           ("steps=two", "use a whole number"), ("steps=true", "use a whole number"), ("steps=1e3", "use a whole number"),
                           ("steps", "steps has no value"), ("steps=", "steps has no value"), ('steps=""', "steps has no value"),
                           ("steps=-1", "--steps -1"), ("lr=nan", "--lr nan"), ("lr=0.1 x # y", "--lr 0.1 x; use a number"),
                           ("documents=maybe", "documents"), ("stepz=1", "line 2: train.serial.stepz is not an option"),
                           ("servers=1", "not an option"), ("[train.ddp]\nsteps=1", "line 3: train.ddp.steps is not an option"),
                           ("[bench]\nranks=1", "line 3: bench.ranks is not an option"), ("[train.serial\nsteps=1", "has no end"),
                           ("[train.serial] steps=1", "'steps=1' after ]"), ('data="a" b', "'b' after a"), ("data='a", "has no closing quote"),
                           ("order=[random", "the list has no end"), ("order=[random] x", "'x' after ]"), ("=1", "'' is not a name"),
                           ("a..b=1", "'a..b' is not a name"), ("config=other.toml", "config"), ("model=small,nano", "no model 'small,nano'"),
                           ("\x1b[31mred=1", r"\x1b[31mred")]:
            with self.subTest(text=text):
                self.refused(part, *self.config("[train.serial]\n" + text + "\n"))
        (self.path / "run.toml").write_text("# a comment\n[train.ddp]\nsteps = 1  # one\nglobal-batch=2\nslow-rank = ['0:1.5',\n '1:2' ]\n"
                                            "clock = unit\nno-overlap\n[ train ]\nddp.prompt = 'a, b # c'\nddp.sample=1\n")
        done = self.run_program("train", "ddp", "--config", "run.toml", "--json", "r.json")
        self.assertEqual(done.returncode, 0, done.stderr)
        config = json.loads((self.path / "r.json").read_text())["config"]
        self.assertEqual((config["slow_ranks"], config["overlap"], config["prompt"]), ({"0": 1.5, "1": 2}, False, "a, b # c"))
        (self.path / "bench.toml").write_text("[bench.3d]\ntp=1,2\ncp=[1]\nranks=4\n")
        done = self.run_program("bench", "3d", "--config", "bench.toml")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_links_have_units(self):
        virtual = ["bench", "barrier", "--ranks", "2", "--clock", "unit", "-n", "1", "--link"]
        for link, part in [("beta=1e9", "'beta=1e9' has no unit"), ("alpha=2", "'alpha=2' has no unit"),
                           ("alpha=1us,beta=1GB/s,node=2,node-beta=1", "'node-beta=1' has no unit"),
                           ("alpha=2h", "cannot read"), ("beta=1e-3B/s", "no network is like"), ("beta=1e9GB/s", "no network is like"),
                           ("alpha=1e9s", "no network is like")]:
            self.refused(part, *virtual, link)
        for command in (["bench", "3d"], ["bench", "tp"], ["bench", "cp", "--simulate"], ["bench", "sharded", "--simulate"]):
            self.refused("has no unit", *command, "--link", "alpha=1us,beta=1e9")
        for link in ("alpha=2us,beta=12.5GB/s", "alpha=0,beta=0"):
            self.assertEqual(self.run_program(*virtual, link).returncode, 0)

    def json_readers(self):
        """Commands that read JSON from the file x.json; and a text of that kind of file, with a place for a value."""
        bench = '{"schema": "lockstep.bench/1", "context": {"lockstep.schema": "lockstep.bench/1", "x": VALUE}, "benchmarks": []}'
        train = '{"schema": "lockstep.train/1", "config": VALUE}'
        config = '{"n_layer": 1, "n_head": 1, "n_embd": 8, "n_positions": 8, "vocab_size": 256, "x": VALUE}'
        lesson = self.path / "01_x"
        lesson.mkdir(exist_ok=True)
        (lesson / "lesson.md").write_text("# 01 X\n\n<!-- answer {\"ask\": \"a\", \"options\": [\"b\"], \"is\": \"b\"} -->\n")
        saved = self.path / "saved"
        saved.mkdir(exist_ok=True)
        index = '{"schema": "lockstep.checkpoint/1", "plan": VALUE, "checksum": "0123456789abcdef"}'
        return [(config, ["train", "serial", "--model", "x.json"]), (config, ["bench", "3d", "--model", "x.json"]),
                ('{"schema": "lockstep.plan/1", "technique": "ddp", "ranks": 2, "options": {}, "x": VALUE}', ["plan", "x.json"]),
                ('{"schema": "lockstep.plan/1", "technique": "ddp", "ranks": 2, "options": {}, "x": VALUE}', ["train", "--plan", "x.json"]),
                ('{"schema": "lockstep.fuzz/1", "seed": 1, "model": {}, "plan": VALUE}', ["fuzz", "--replay", "x.json"]),
                ('{"schema": "lockstep.tuning/1", "choices": [VALUE]}',
                 ["bench", "all_reduce", "--algorithm", "auto", "--tuned", "x.json"]),
                (bench, ["compare", "x.json", "x.json"]), (train, ["compare", "x.json", "x.json"]),
                (bench, ["bench", "barrier", "--baseline", "x.json"]), (bench, ["plot", "bandwidth", "x.json", "--output", "x.svg"]),
                ('{"1": VALUE}', ["lesson", "01_x", "--answers", "x.json", "--progress", "p.json"]),
                ('{"schema": "lockstep.lessons/1", "lessons": VALUE}', ["lesson", "01_x", "--progress", "x.json"]),
                (index, ["checkpoint", "inspect", "saved"]), (index, ["checkpoint", "convert", "saved", "--output", "c"]),
                (index, ["checkpoint", "export", "saved", "--output", "w"]), (index, ["train", "serial", "--resume", "saved"])]

    def test_json_that_would_break_its_reader(self):
        values = {"nested": "[" * 200_000 + "]" * 200_000, "nested in objects": '{"a":' * 100_000 + "1" + "}" * 100_000,
                  "twice": '{"a": 1, "a": 2}', "twice, escaped": '{"a": 1, "\\u0061": 2}'}
        for kind, value in values.items():
            for text, words in self.json_readers():
                if words[0] == "plot" and kind != "twice":  # takes long to start, and has tests of its own
                    continue
                with self.subTest(kind=kind, words=words):
                    for name in ("x.json", "saved/index.json"):
                        (self.path / name).write_text(text.replace("VALUE", value))
                    done = self.run_program(*words)
                    self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1), done.stderr[-300:])
                    self.assertIn("nested" if "nested" in kind else "twice", done.stderr)
        (self.path / "many.md").write_text("# 01 X\n\n<!-- predict {\"a\": " + values["nested"] + "} -->\n")
        (self.path / "many.md").rename(self.path / "01_x" / "lesson.md")
        self.refused("nested", "lesson", "01_x", "--progress", "p.json")

    @unittest.skipIf(HAS_SANITIZER, "sanitizers need the memory themselves")
    def test_json_that_would_fill_the_memory(self):
        """A million tensors of an index, and as many values of other files, are refused before they take 600 MB."""
        tensor = ('{"parameter":"h.0.attn.c_attn.weight","state":"value","dtype":"f32","rows":[0,1],"columns":[0,1],'
                  '"checksum":"0123456789abcdef"}')
        (self.path / "saved").mkdir()
        (self.path / "saved/index.json").write_text(
            '{"schema":"lockstep.checkpoint/1","files":[{"name":"rank-00000.safetensors","tensors":[' + ",".join([tensor] * 1_000_000) + "]}]}")
        (self.path / "x.json").write_text("[" + "{}," * 3_000_000 + "{}]")
        limit = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_DATA, (900 << 20, 900 << 20))}
        for part, words in [("; at most", ["checkpoint", "inspect", "saved"]), ("; at most", ["train", "serial", "--resume", "saved"]),
                            ("values", ["plan", "x.json"]), ("bytes", ["lesson", "1", "--progress", "x.json"])]:
            with self.subTest(words=words):
                self.refused(part, *words, **limit)
        (self.path / "x.json").write_text("{" + ",".join(f'"{i}":0' for i in range(20_000)) + "}")
        self.refused("names", "plan", "x.json")

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
                ("100000 threads; the limit is 16384", ["train", "ddp", "--ranks", "100000", "--global-batch", "100000"]),
                ("100000 threads; the limit is 16384", ["train", "serial", "--threads", "100000"]),
                ("100000 threads; the limit is 16384", ["bench", "model", "--threads", "100000"]),
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

    def test_names_that_are_not_utf8(self):
        """A name in another encoding, or with control characters, ends no run: results name it escaped."""
        for name in (b"\xff\x1b[31m", "\u009b\u00e9".encode(), b"a\nb\"\\"):
            text, weights, saved, trace, result, config = (self.path / part.encode().decode() for part in
                                                           ("t", "w", "s", "x", "r", "c"))
            names = {key: bytes(path) + name for key, path in zip(("text", "weights", "saved", "trace", "json"),
                                                                  (text, weights, saved, trace, result))}
            names["model"] = bytes(config) + name + b".json"
            with open(names["text"], "wb") as file:
                file.write(b"words of a text\n" * 2000)
            with open(names["model"], "w") as file:
                json.dump({"n_layer": 1, "n_head": 1, "n_embd": 8, "n_positions": 8, "vocab_size": 256}, file)
            train = ["train", "ddp", "--ranks", "2", "--global-batch", "2", "--steps", "1", "--model", names["model"], "--data", names["text"]]
            environment = {**os.environb, b"NCCL_ALGO": name}
            runs = [[*train, "--json", names["json"], "--trace", names["trace"], "--save", names["weights"] + b".safetensors", "--checkpoint",
                     names["saved"], "--sample", "2", "--prompt", name],
                    ["train", "ddp", "--ranks", "2", "--model", names["model"], "--json", names["json"], "--device", "none"],
                    ["bench", "all_reduce", "-e", "64", "-n", "1", "--json", names["json"], "--trace", names["trace"]],
                    ["bench", "3d", "--ranks", "2", "--model", names["model"], "--json", names["json"]],
                    ["bench", "tp", "--ranks", "2", "--variant", "tp", "--json", names["json"]],
                    ["contributions", "all_reduce", "--ranks", "2", "--json", names["json"]],
                    ["schedule", "1f1b", "-p", "2", "-m", "2", "--json", names["json"], "--save", names["text"] + b".csv"],
                    ["schedule", "--schedule-file", names["text"] + b".csv", "--json", names["json"]],
                    ["checkpoint", "inspect", names["saved"]], ["checkpoint", "verify", names["saved"]],
                    ["checkpoint", "convert", names["saved"], "--output", names["saved"] + b".2"],
                    ["checkpoint", "export", names["saved"], "--output", names["weights"] + b".2.safetensors"]]
            for words in runs:
                with self.subTest(name=name, words=words):
                    done = self.run_program(*words, text=False, env=environment)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    for said in (done.stdout, done.stderr):
                        self.assertNotIn("\x1b", said.decode())
                        self.assertNotIn("\u009b", said.decode())
                    for key in ("--json", "--trace"):
                        if key in words:
                            with open(words[words.index(key) + 1], encoding="utf-8") as file:
                                json.load(file)
            with open(names["json"].replace(b"/r", b"/x"), "rb") as file:
                self.assertNotIn(b"\x1b", file.read())
            self.assertTrue([path for path in os.listdir(names["saved"]) if path.startswith(b"step-")])
        # A plan is read again, so it must hold the very name.
        done = self.run_program("plan", "serial", "--data", b"\xff", "--json", "p.json")
        self.assertEqual(done.returncode, 2)
        self.assertIn(r"--data \xff is not UTF-8", done.stderr)
        self.assertFalse((self.path / "p.json").exists())

    def test_outputs_within_a_checkpoint(self):
        train = ["train", "ddp", "--global-batch", "2", "--steps", "1"]
        self.assertEqual(self.run_program(*train, "--checkpoint", "saved").returncode, 0)
        one = "saved/step-00000001"
        before = {path.name: path.read_bytes() for path in (self.path / one).iterdir()}
        for words in (["checkpoint", "export", "saved", "--output"], ["checkpoint", "convert", one, "--output"], [*train, "--json"],
                      [*train, "--resume", "saved", "--steps", "2", "--trace"], ["mesh", "--tp", "2", "--json"], ["plan", "ddp", "--json"],
                      ["bench", "barrier", "--json"], ["schedule", "1f1b", "--save"], [*train, "--save"]):
            for name in ("index.json", "rank-00000.safetensors", "new.safetensors"):
                with self.subTest(words=words, name=name):
                    self.refused("checkpoint", *words, f"{one}/{name}")
        self.assertEqual({path.name: path.read_bytes() for path in (self.path / one).iterdir()}, before)
        done = self.run_program("checkpoint", "export", "saved", "--output", "new/folder/w.safetensors")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue((self.path / "new/folder/w.safetensors").exists() and (self.path / "new/folder/config.json").exists())
        self.assertEqual(self.run_program("train", "ddp", "--steps", "2", "--global-batch", "2", "--resume", "saved", "--json",
                                          "saved/r.json").returncode, 0)

    def test_batches_without_a_target_are_refused_before_the_first_step(self):
        words = "".join("x" * (7 * i % 19) + "\n\n" for i in range(5000))
        (self.path / "tail.txt").write_text(words + "\n" * 8000)
        (self.path / "middle.txt").write_text(words[:30000] + "\n" * 2000 + words)
        header = [20240520, 1, 20000] + [0] * 253
        tokens = [i % 50 for i in range(15000)] + [50256] * 5000
        (self.path / "tail.bin").write_bytes(struct.pack("<256i", *header) + struct.pack("<20000H", *tokens))
        (self.path / "model.json").write_text(json.dumps(
            {"n_layer": 2, "n_head": 2, "n_embd": 16, "n_positions": 64, "vocab_size": 50257}))
        (self.path / "short.txt").write_text(words[:3000])
        steps = ["--global-batch", "4", "--steps", "300", "--checkpoint", "saved"]
        held_out, sequential = ["--documents", "--validation-fraction", "0.05"], ["--documents", "--order", "sequential"]
        for part, more in [("no target in", ["--data", "tail.txt", *held_out]),
                           ("no target in", ["--data", "tail.bin", "--model", "model.json", *held_out]),
                           ("no target in sequences", ["--data", "middle.txt", *sequential]),
                           ("step 299 needs sequence 1199", ["--data", "short.txt", "--order", "sequential"]),
                           ("held-out tokens are too few", ["--data", "short.txt", "--validation-fraction", "0.001"])]:
            for technique in (["serial"], ["ddp"], ["pipeline", "--micro-batches", "2"], ["cp"], ["fsdp"], ["tp"], ["ps", "--ranks", "3"],
                              ["ps", "--ranks", "3", "--mode", "asp"]):
                with self.subTest(part=part, technique=technique):
                    self.refused(part, "train", *technique, *more, *steps)
        # A worker on its own needs a target in each of its batches.
        (self.path / "half.txt").write_text(words[:120] + "\n" * 200 + words[:256])
        one = ["--data", "half.txt", *sequential, "--global-batch", "4", "--steps", "1"]
        self.refused("no target in sequences 2 to 3 of step 0", "train", "ps", "--ranks", "3", "--mode", "asp", *one)
        self.assertEqual(self.run_program("train", "ps", "--ranks", "3", *one).returncode, 0)
        (self.path / "ascii.json").write_text((self.path / "model.json").read_text().replace("50257", "128"))
        self.refused("the prompt's byte 195 is beyond", "train", "serial", "--model", "ascii.json", "--data", "short.txt", *steps, "--sample",
                     "1", "--prompt", "\u00e9")
        self.refused("an empty prompt", "train", "serial", *steps, "--sample", "1", "--prompt", "")
        self.assertFalse((self.path / "saved").exists())

    def test_a_failed_validation_leaves_the_checkpoint(self):
        """The model gives the letter z no chance, and only the held-out text has it: the loss there is infinite."""
        (self.path / "text.txt").write_text("a few words " * 400 + "z" * 800)
        (self.path / "model.json").write_text(json.dumps({"n_layer": 1, "n_head": 1, "n_embd": 8, "n_positions": 8, "vocab_size": 256}))
        train = ["--model", "model.json", "--data", "text.txt", "--global-batch", "2", "--steps", "1"]
        self.assertEqual(self.run_program("train", "serial", *train, "--save", "w.safetensors").returncode, 0)
        content = bytearray((self.path / "w.safetensors").read_bytes())
        (length,) = struct.unpack_from("<Q", content)
        for name, entry in json.loads(content[8:8 + length]).items():
            begin = 8 + length + entry.get("data_offsets", [0])[0]
            if name.endswith("ln_f.weight"):
                struct.pack_into("<8f", content, begin, *[0] * 8)
            elif name.endswith("ln_f.bias"):
                struct.pack_into("<8f", content, begin, *[1] * 8)
            elif name.endswith("wte.weight"):
                struct.pack_into("<8f", content, begin + 4 * 8 * ord("z"), *[-3e38] * 8)
        (self.path / "w.safetensors").write_bytes(content)
        for technique in (["serial"], ["fsdp"], ["ps", "--ranks", "3"], ["ps", "--ranks", "3", "--mode", "asp"]):
            folder = "-".join(technique)
            done = self.run_program("train", *technique, *train, "--init", "w.safetensors", "--validation-fraction", "0.1", "--checkpoint",
                                    folder)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertRegex(done.stderr, "validation after 1 steps: loss -?(inf|nan)")
            self.assertEqual(self.run_program("checkpoint", "verify", folder).returncode, 0)

    def test_process_scans_survive_any_name(self):
        """Also the helper of the tests that look for what is left over."""
        name = self.path / os.fsdecode(b"\xff\xfe")
        name.symlink_to("/bin/sleep")
        with subprocess.Popen([name, "100"], cwd=self.path) as running:
            try:
                found = processes.still_left(lambda: not processes.processes_in(self.path), 10)
                self.assertEqual(processes.processes_in(self.path), [str(running.pid)], found)
                processes.mapped_segments()
            finally:
                running.kill()

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
                            ("write --ranks after 'ddp', not before it", ["train", "--ranks", "2", "ddp"]),
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
        chosen = {"train ddp", "compare", "history trend", "schedule", "mesh", "doctor", "contributions"}
        if not HAS_SANITIZER:
            chosen |= {"train", "plan", "train 3d", "bench all_reduce", "bench broadcast", "bench ps", "bench pipeline", "bench tp",
                       "bench sharded", "bench attention", "bench cp", "bench pairs"}
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
        self.refused("one.txt: found no document boundary: no line is empty", "train", "serial", "--documents", "--data", "one.txt")
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
