"""Folders of checkpoints that several runs use: one writes at a time, each run's branch is told from the others', and nothing is lost
or mixed, whatever runs are started, killed and resumed.

python3 checkpoint_branches_test.py PROGRAM SOURCE_FOLDER

Random runs: 12 steps, or 200 if LOCKSTEP_CAMPAIGN=whole is in the environment. LOCKSTEP_BRANCH_SEED chooses others.
"""

import hashlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM, SOURCE = pathlib.Path(sys.argv[1]).absolute(), pathlib.Path(sys.argv[2]).absolute()
MODEL = {"model_type": "gpt2", "n_layer": 1, "n_head": 1, "n_embd": 8, "n_positions": 16, "vocab_size": 128}
ACTIONS = 200 if os.environ.get("LOCKSTEP_CAMPAIGN") == "whole" else 12
SEED = int(os.environ.get("LOCKSTEP_BRANCH_SEED", "1"))
ENDLESS = 10_000_000


def run_of(checkpoint):
    return json.loads((checkpoint / "index.json").read_text())["branch"]["run"]


def step_of(checkpoint):
    return int(checkpoint.name.removeprefix("step-"))


class Runs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name)
        (self.path / "model.json").write_text(json.dumps(MODEL))

    def command(self, *words):
        tiny = ["serial", "--model", "model.json", "--data", SOURCE / "tests/golden/tiny/tokens.bin", "--global-batch", "1", "--threads", "1"]
        words = words[:1] + tuple(tiny) + words[1:] if words[0] == "train" else words
        return [str(word) for word in [PROGRAM, *words]]

    def start(self, *words):
        process = subprocess.Popen(self.command(*words), cwd=self.path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.addCleanup(lambda: (process.kill(), process.wait(), process.stderr.close()))
        return process

    def run_program(self, *words, status=0):
        done = subprocess.run(self.command(*words), cwd=self.path, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def start_writer(self, folder="run"):
        """A run that has written a checkpoint and goes on for ever."""
        writer = self.start("train", "--steps", ENDLESS, "--checkpoint", folder, "--checkpoint-interval", "1", "--keep", "2")
        deadline = time.monotonic() + 30
        while not self.steps(folder) and writer.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        self.assertIsNone(writer.poll())
        return writer

    def steps(self, folder="run"):
        return sorted(step_of(path) for path in (self.path / folder).glob("step-*"))

    def write(self, steps, *words, folder="run"):
        return self.run_program("train", "--steps", steps, "--checkpoint", folder, "--checkpoint-interval", "1", *words)


class Locks(Runs):
    def test_a_folder_has_one_writer(self):
        writer = self.start_writer()
        goes_on = ["train", "--steps", ENDLESS, "--checkpoint", "run", "--resume", "run"]
        for words in goes_on, ["checkpoint", "convert", "run", "--output", "run/other"]:
            said = self.run_program(*words, status=2)
            self.assertRegex(said, rf"run is being written by process {writer.pid} on {re.escape(os.uname().nodename)}, since 20\d\d-")
        self.assertFalse((self.path / "run/other").exists())
        writer.kill()
        writer.wait()
        self.run_program("checkpoint", "verify", "run")
        # Its lock remains, and is taken over; what it was writing is removed.
        self.assertTrue((self.path / "run/.lock").exists())
        (self.path / "run/.writing-step-00000001-0123456789abcdef").mkdir()
        last = self.steps()[-1]
        self.write(last + 1, "--resume", "run")
        self.assertEqual(self.steps()[-1], last + 1)
        self.assertEqual([path.name for path in (self.path / "run").glob(".*")], [])

    def test_only_the_lock_of_an_ended_process_is_taken_over(self):
        writer = self.start_writer()
        text = (self.path / "run/.lock").read_text()
        writer.kill()
        writer.wait()
        own_start = pathlib.Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
        booted = int(re.search(r"^btime (\d+)", pathlib.Path("/proc/stat").read_text(), re.MULTILINE)[1])

        def with_lines(**lines):
            return re.sub(r"^(\w+): (.*)$", lambda line: f"{line[1]}: {lines.get(line[1], line[2])}", text, flags=re.MULTILINE)

        remove = "remove run/.lock"
        for lock, is_old, expected in [
                (text, False, None),
                (with_lines(process=os.getpid()), False, None),  # another process has the number by now
                (with_lines(process=os.getpid(), started=own_start), False, f"is being written by process {os.getpid()} on"),
                (with_lines(boot="another"), True, None),
                (with_lines(boot="another"), False, remove),  # another host of the same name
                (with_lines(host="elsewhere"), True, remove),
                (with_lines(space="pid:[1]"), False, remove),
                (with_lines(host="\x1b[2J"), False, "is not a lock"),
                ("", False, "is not a lock"),
                ("process 1\n" * 1000, False, "is not a lock")]:
            (self.path / "run/.lock").write_text(lock)
            if is_old:
                os.utime(self.path / "run/.lock", (booted - 100, booted - 100))
            before = self.steps()
            with self.subTest(lock[:300]):
                words = "train", "--steps", before[-1] + 1, "--checkpoint", "run", "--resume", "run"
                said = self.run_program(*words, status=2 if expected else 0)
                self.assertIn(expected or "", said)
                self.assertNotIn("\x1b", said)
                self.assertEqual(self.steps(), before if expected else [*before, before[-1] + 1])

    def test_a_writer_that_has_lost_its_lock_ends(self):
        writer = self.start_writer()
        (self.path / "run/.lock").unlink()
        said = writer.communicate(timeout=30)[1]
        self.assertEqual(writer.returncode, 2, said)
        self.assertIn("run/.lock is no longer this process's: somebody has removed it", said)
        self.run_program("checkpoint", "verify", "run")

    def test_a_folder_that_was_not_used_is_not_left(self):
        self.run_program("train", "--steps", "1", "--checkpoint", "new", "--resume", "nowhere", status=2)
        self.assertFalse((self.path / "new").exists())

    def test_nothing_is_added_to_a_checkpoint(self):
        self.write(2)
        inside = "run/step-00000002"
        before = {path: path.read_bytes() for path in (self.path / inside).iterdir()}
        for words in [["train", "--steps", "3", "--resume", "run", "--checkpoint", inside],
                      ["train", "--steps", "3", "--checkpoint", f"{inside}/new/"],
                      ["train", "--steps", "3", "--save", f"{inside}/rank-00000.safetensors"],
                      ["checkpoint", "convert", "run", "--output", f"{inside}/new"],
                      ["checkpoint", "export", "run", "--output", f"{inside}/rank-00000.safetensors"]]:
            self.assertIn("is a checkpoint; name a path outside of it", self.run_program(*words, status=2))
        self.assertEqual({path: path.read_bytes() for path in (self.path / inside).iterdir()}, before)
        self.assertIn("names another step", self.run_program("checkpoint", "convert", inside, "--output", "run/step-00000007", status=2))


class Branches(Runs):
    def losses(self):
        return {step["step"]: step["loss"] for step in json.loads((self.path / "result.json").read_text())["steps"]}

    def test_a_run_from_an_earlier_step_sets_the_later_ones_aside(self):
        self.write(6)
        first = run_of(self.path / "run/step-00000006")
        said = self.write(5, "--resume", "run/step-00000003", "--keep", "1", "--lr", "0.01", "--json", "result.json")
        self.assertIn("3 checkpoints are in run that step 3 does not go on from", said)
        # The first three are of both branches.
        self.assertEqual(self.steps(), [1, 2, 3, 5])
        second = run_of(self.path / "run/step-00000005")
        self.assertEqual(self.steps(f"run/set-aside-{second}"), [4, 5, 6])
        written = self.losses()[4]
        self.assertIn(f"runs           {first} to step 3, {second} to step 5", self.run_program("checkpoint", "inspect", "run"))
        # The folder goes on with the new branch, of which --keep removes only what the other does not need.
        self.assertNotIn("go on from", self.write(6, "--resume", "run", "--keep", "1"))
        self.assertEqual(self.steps(), [1, 2, 3, 6])
        # The branch that was set aside is a folder to resume, and can come back.
        self.write(7, "--resume", f"run/set-aside-{second}")
        third = run_of(self.path / "run/step-00000007")
        self.assertEqual((self.steps(), self.steps(f"run/set-aside-{third}")), ([1, 2, 3, 7], [6]))
        self.run_program("train", "--steps", "5", "--resume", "run/step-00000003", "--lr", "0.01", "--json", "result.json")
        self.assertEqual(self.losses()[4], written)

    def test_checkpoints_of_another_folder_are_not_mixed_in(self):
        self.write(2)
        self.write(3, folder="other")
        for origin in [], ["--resume", "other"], ["--resume", "other/step-00000002/"]:
            said = self.run_program("train", "--steps", "4", "--checkpoint", "run/", *origin, status=2)
            self.assertIn("run/ contains checkpoints already", said)
        self.write(4, "--resume", "other", folder="new/")
        self.assertEqual((self.steps(), self.steps("new")), ([1, 2], [4]))

    def test_keep_goes_on_over_runs(self):
        self.write(4, "--keep", "2")
        self.assertEqual(self.steps(), [3, 4])
        self.write(5, "--keep", "2", "--resume", "run")
        self.assertEqual(self.steps(), [4, 5])

    def test_a_damaged_newest_one_is_set_aside(self):
        self.write(4, "--keep", "3")
        (self.path / "run/step-00000004/index.json").write_text("{}")
        said = self.write(5, "--resume", "run", "--keep", "2")
        self.assertIn("skipping a damaged checkpoint", said)
        # It is no branch, so the older ones are only of this one.
        self.assertEqual(self.steps(), [4, 5])
        self.assertEqual([step_of(path) for path in (self.path / "run").glob("set-aside-*/step-*")], [4])

    def test_several_branches_in_one_folder_are_not_mixed(self):
        self.write(4)
        self.write(4, "--resume", "run/step-00000002")
        aside = next((self.path / "run").glob("set-aside-*/step-00000003"))
        shutil.rmtree(self.path / "run/step-00000003")
        shutil.copytree(aside, self.path / "run/step-00000003")
        for words in ["train", "--steps", "5", "--resume", "run"], ["checkpoint", "export", "run", "--output", "weights.safetensors"]:
            said = self.run_program(*words, status=2)
            self.assertIn("run/step-00000004 does not go on from run/step-00000003: they are of different branches", said)
        self.write(5, "--resume", "run/step-00000004")
        self.assertEqual(self.steps(), [1, 2, 4, 5])

    def test_checkpoints_without_a_branch_go_on(self):
        """As Lockstep wrote them at first."""
        self.write(3)
        for index in (self.path / "run").glob("step-*/index.json"):
            content = json.loads(index.read_text())
            del content["branch"], content["checksum"]
            for file in content["files"]:
                del file["header_checksum"]
            text = json.dumps(content, separators=(",", ":"), ensure_ascii=False)
            index.write_text(json.dumps({**content, "checksum": checksum_of(text)}, indent=1))
        self.run_program("checkpoint", "verify", "run")
        self.write(4, "--resume", "run/step-00000002", "--keep", "1")
        self.assertEqual(self.steps(), [1, 2, 4])
        self.assertEqual([step_of(path) for path in (self.path / "run").glob("set-aside-*/step-*")], [3])


class Random(Runs):
    """Every checkpoint that was ever seen stays, unless its own branch has newer ones to keep; and is what its history says."""

    def setUp(self):
        super().setUp()
        self.random = random.Random(SEED)
        self.known = {}  # path without its folder's name -> of a checkpoint: (run, step, digest)
        self.contents = {}  # history -> digest
        self.histories = {}  # run -> [(first step, learning rate)]
        self.damaged = set()

    def folders(self):
        return [self.path / "run", *sorted((self.path / "run").glob("**/set-aside-*"))]

    def digest(self, checkpoint):
        return hashlib.sha256(b"".join(file.read_bytes() for file in sorted(checkpoint.glob("rank-*")))).hexdigest()

    def seen(self):
        """(run, step) -> (folder, digest) of all checkpoints."""
        found = {}
        for folder in self.folders():
            for path in folder.glob("step-*"):
                key = run_of(path), step_of(path)
                self.assertNotIn(key, found, "a checkpoint twice")
                found[key] = folder, self.digest(path)
        return found

    def lineage(self, checkpoint):
        """run -> the last of its steps that lies on the way to a checkpoint."""
        branch = json.loads((checkpoint / "index.json").read_text())["branch"]
        return {**{origin["run"]: origin["step"] for origin in branch["before"]}, branch["run"]: step_of(checkpoint)}

    def history(self, checkpoint, rates):
        """The learning rate of each step. `rates` are those of new runs."""
        lineage = self.lineage(checkpoint)
        steps = []
        for run, last in lineage.items():
            self.histories.setdefault(run, rates)
            steps += [self.histories[run]] * (last - len(steps))
        return tuple(steps)

    def check(self, folder_written, rate, keep, was_killed):
        found = self.seen()
        lineages = {}
        for folder in self.folders():
            paths = sorted(folder.glob("step-*"))
            for path in paths:
                lineages[path] = self.lineage(path)
                # The same steps with the same learning rates give the same bits, whatever runs took them.
                key = run_of(path), step_of(path)
                if key not in self.damaged:
                    history = self.history(path, rate)
                    self.assertEqual(self.contents.setdefault(history, self.digest(path)), self.digest(path), history)
            # What can be resumed as one folder is of one branch.
            for path in paths:
                newest = lineages[paths[-1]]
                self.assertLessEqual(step_of(path), newest.get(run_of(path), 0), f"{path} is not on the way to {paths[-1]}")
        for key, (folder, digest) in self.known.items():
            if key in found:
                self.assertEqual(found[key][1], digest, f"{key} has changed")
                continue
            # It was removed: by a run on its own branch that has as many newer ones, and no branch set aside there needs it. Damaged
            # checkpoints are no branch.
            self.assertGreater(keep, 0, f"{key} is lost")
            on_the_way = [path for path, lineage in lineages.items() if key[1] <= lineage.get(key[0], 0)]
            there = [path for path in on_the_way if path.is_relative_to(folder) and
                     (path.parent == folder or (run_of(path), step_of(path)) not in self.damaged)]
            self.assertEqual({path.parent for path in there}, {folder}, f"{key} is lost")
            self.assertGreaterEqual(len(there), keep, f"{key} is lost")
        if not was_killed:
            self.assertEqual([path.name for path in folder_written.glob(".*")], [])
        self.known = found

    def whole_in(self, folder):
        return [path for path in sorted(folder.glob("step-*")) if (run_of(path), step_of(path)) not in self.damaged]

    def act(self):
        asides = [folder for folder in self.folders()[1:] if self.whole_in(folder)]
        folder = self.random.choice([self.path / "run"] * (3 + len(asides) // 2) + asides)
        checkpoints = self.whole_in(folder)
        origin = self.random.choice([folder, folder, *checkpoints]) if checkpoints else None
        if folder != self.path / "run" and origin and self.random.random() < 0.5:
            folder = self.path / "run"  # a branch that was set aside comes back
        first = (step_of(origin) if origin != folder and origin.name.startswith("step") else step_of(checkpoints[-1])) if origin else 0
        rate, keep = self.random.choice(["0.001", "0.01"]), self.random.choice([0, 0, 1, 2, 3])
        words = ["train", "--lr", rate, "--steps", first + self.random.randint(1, 4), "--checkpoint", folder, "--checkpoint-interval",
                 self.random.choice([1, 1, 2]), "--keep", keep]
        words += ["--resume", origin] if origin else []
        kind = self.random.choice(["run", "run", "run", "two", "kill", "damage"])
        if kind == "two":
            other = [*words[:4], first + self.random.randint(1, 4), *words[5:]]
            runs = [self.start(*words), self.start(*other)]
            for process in runs:
                said = process.communicate(timeout=60)[1]
                # The second may come later, or not at all.
                self.assertIn(process.returncode, (0, 2), said)
                self.assertRegex(said, "^$|is being written by process|is already at step|contains checkpoints already|is not a folder|moves (it|them) to")
            self.assertIn(0, [process.returncode for process in runs])
        elif kind == "kill":
            words[4] = ENDLESS
            process = self.start(*words)
            time.sleep(self.random.uniform(0.02, 0.2))
            process.send_signal(signal.SIGKILL)
            process.communicate()
        elif kind == "damage" and len(checkpoints) > 1:
            victim = checkpoints[-1]
            file = victim / "rank-00000.safetensors"
            data = bytearray(file.read_bytes())
            data[self.random.randrange(len(data))] ^= 1 << self.random.randrange(8)
            file.write_bytes(data)
            key = run_of(victim), step_of(victim)
            self.damaged.add(key)
            self.known[key] = self.known[key][0], self.digest(victim)
            self.assertIn("DAMAGED", self.run_program("checkpoint", "verify", victim, status=1))
        else:
            self.run_program(*words)
            newest = max(folder.glob("step-*"), key=step_of)
            self.assertEqual(step_of(newest), words[4])
        return folder, rate, keep, kind in ("kill", "damage"), " ".join(map(str, [kind, *words]))

    def test_nothing_is_lost_and_nothing_is_mixed(self):
        done = []
        for _ in range(ACTIONS):
            folder, rate, keep, was_killed, words = self.act()
            done.append(words)
            with self.subTest("\n".join(done)):
                self.check(folder, rate, keep, was_killed)
        self.assertGreater(len(self.contents), ACTIONS // 4)


def checksum_of(text):
    import ctypes
    import ctypes.util
    library = ctypes.CDLL(ctypes.util.find_library("xxhash") or "libxxhash.so.0")
    library.XXH3_64bits.restype = ctypes.c_uint64
    library.XXH3_64bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    data = text.encode()
    return f"{library.XXH3_64bits(data, len(data)):016x}"


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
