"""Damaged checkpoints under every command that reads them: each ends with its status and a message, and none passes damage on.

python3 checkpoint_mutants_test.py PROGRAM SOURCE_FOLDER

Bits, bytes and ends of files, missing and exchanged files, exchanged folders, and indexes that were changed and have a right
checksum. Tries 30 mutants, or 2,000 if LOCKSTEP_CAMPAIGN=whole is in the environment. LOCKSTEP_MUTANT_SEED chooses others.
"""

import concurrent.futures
import copy
import ctypes
import ctypes.util
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAM, SOURCE = pathlib.Path(sys.argv[1]).absolute(), pathlib.Path(sys.argv[2]).absolute()
MODEL = {"model_type": "gpt2", "n_layer": 1, "n_head": 1, "n_embd": 8, "n_positions": 16, "vocab_size": 128}
TINY = ["ddp", "--ranks", "2", "--model", "model.json", "--data", SOURCE / "tests/golden/tiny/tokens.bin", "--global-batch", "2", "--threads", "1"]
MUTANTS = 2000 if os.environ.get("LOCKSTEP_CAMPAIGN") == "whole" else 30
SEED = int(os.environ.get("LOCKSTEP_MUTANT_SEED", "1"))
COMMANDS = {
    "inspect": ["checkpoint", "inspect", "saved"],
    "verify": ["checkpoint", "verify", "saved"],
    "convert": ["checkpoint", "convert", "saved", "--output", "converted", "--files", "2"],
    "export": ["checkpoint", "export", "saved", "--output", "exported.safetensors"],
    "resume": ["train", *TINY, "--steps", "3", "--resume", "saved", "--json", "resumed.json"],
}
FILES = ["rank-00000.safetensors", "rank-00001.safetensors", "index.json"]
NEWEST, OLDER = "step-00000002", "step-00000001"


def checksum_of(data):
    library = ctypes.CDLL(ctypes.util.find_library("xxhash") or "libxxhash.so.0")
    library.XXH3_64bits.restype = ctypes.c_uint64
    library.XXH3_64bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    return f"{library.XXH3_64bits(data, len(data)):016x}"


def write_index(path, content):
    content.pop("checksum", None)
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False)
    path.write_text(json.dumps({**content, "checksum": checksum_of(text.encode())}, indent=1, ensure_ascii=False) + "\n")


def leaves(value, place=()):
    if isinstance(value, (dict, list)) and value:
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from leaves(value[key], (*place, key))
    if place:
        yield place


class Mutation:
    """Changes the newest checkpoint in a folder. `kind` says how; `is_forged` if its index has a right checksum."""

    def __init__(self, number):
        self.random = random.Random(f"{SEED} {number}")
        kinds = [name for name in dir(self) if name.startswith("change_")]
        self.kind = kinds[number % len(kinds)]
        self.is_forged = "forged" in self.kind

    def apply(self, saved):
        self.saved, self.newest = saved, saved / NEWEST
        self.what = f"{self.kind} {getattr(self, self.kind)()}"

    def edit(self, change):
        """Replaces the bytes of one of the files."""
        file = self.newest / self.random.choice(FILES)
        before = file.read_bytes()
        header = 8 + int.from_bytes(before[:8], "little") if file.suffix == ".safetensors" else len(before)
        at = self.random.randrange(header if self.random.random() < 0.4 else len(before))
        file.write_bytes(change(before, at))
        return f"{file.name} at {at}"

    def change_bit(self):
        bit = 1 << self.random.randrange(8)
        return self.edit(lambda data, at: data[:at] + bytes([data[at] ^ bit]) + data[at + 1:])

    def change_value(self):
        """A bit of the data. The first tensor of a file is of values, which export reads."""
        file = self.newest / self.random.choice(FILES[:2])
        data = bytearray(file.read_bytes())
        begin = 8 + int.from_bytes(data[:8], "little")
        at = begin + self.random.choice([2, self.random.randrange(len(data) - begin)])
        data[at] ^= 1 << self.random.randrange(8)
        file.write_bytes(data)
        return f"{file.name} at {at}"

    def change_bytes(self):
        new = self.random.choice([bytes(64), b"\xff" * 64, self.random.randbytes(16), b"{[\"", b"9" * 30])
        return self.edit(lambda data, at: (data[:at] + new + data[at + len(new):])[:len(data)])

    def change_place_of_bytes(self):
        length = self.random.choice([1, 4, 8, 64, 1000])
        return self.edit(lambda data, at: data[:at] + data[-length:] + data[at:] if self.random.random() < 0.5 else data[:at] + data[at + length:])

    def change_end(self):
        more = self.random.choice([b"", b"", b"\0", b"}", bytes(1000)])
        return self.edit(lambda data, at: data + more if more else data[:at])

    def change_missing(self):
        name = self.random.choice([*FILES, "*"])
        for file in self.newest.glob(name):
            file.unlink()
        if self.random.random() < 0.5 and name != "*":
            self.random.choice([(self.newest / name).mkdir, lambda: (self.newest / name).symlink_to(name), (self.newest / name).touch])()
        return name

    def change_exchanged_files(self):
        here = self.newest / self.random.choice(FILES)
        there = self.random.choice([self.saved / OLDER / here.name, *(self.newest / name for name in FILES if name != here.name)])
        shutil.move(here, self.saved / "aside")
        shutil.move(there, here)
        shutil.move(self.saved / "aside", there)
        return f"{here.name} and {there}"

    def change_exchanged_folders(self):
        names = [NEWEST, OLDER]
        if self.random.random() < 0.5:
            names[1] = "step-00000007"
            shutil.move(self.newest, self.saved / names[1])
        else:
            shutil.move(self.newest, self.saved / "aside")
            shutil.move(self.saved / OLDER, self.newest)
            shutil.move(self.saved / "aside", self.saved / OLDER)
        return names

    def change_forged_value(self):
        content = json.loads((self.newest / "index.json").read_text())
        place = self.random.choice(list(leaves(content)))
        *way, last = place
        inner = content
        for key in way:
            inner = inner[key]
        old = inner[last]
        numbers = [0, -1, 1, 2, 7, 2**31, 2**62, 2**63, 2**64, -2**63, 0.5, -0.0, 1e308]
        inner[last] = self.random.choice([*numbers, None, True, "", "word", "../" * 3, [], {}, [old], {"a": old}, "0" * 16, "f" * 16])
        write_index(self.newest / "index.json", content)
        return f"{place}: {str(old)[:40]} -> {str(inner[last])[:40]}"

    def change_forged_structure(self):
        content = json.loads((self.newest / "index.json").read_text())
        place = self.random.choice([place for place in leaves(content) if len(place) < 5])
        *way, last = place
        inner = content
        for key in way:
            inner = inner[key]
        if isinstance(inner, list):
            self.random.choice([lambda: inner.pop(last), lambda: inner.append(copy.deepcopy(inner[last])), lambda: inner.reverse()])()
        else:
            del inner[last]
        write_index(self.newest / "index.json", content)
        return place

    def change_forged_tensors(self):
        """A field of two tensors exchanged: the boxes still fill the model."""
        content = json.loads((self.newest / "index.json").read_text())
        tensors = [tensor for file in content["files"] for tensor in file["tensors"]]
        a, b = self.random.sample(tensors, 2)
        key = self.random.choice(["checksum", "state", "parameter", "rows", "columns"])
        a[key], b[key] = b[key], a[key]
        write_index(self.newest / "index.json", content)
        return f"{key} of {a['parameter']} and {b['parameter']}"


class Mutants(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name)
        self.model(self.path)
        done = self.run_in(self.path, "train", *TINY, "--steps", "2", "--checkpoint", "saved", "--checkpoint-interval", "1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.original, said = self.results(self.path)
        self.assertEqual([done.returncode for done in said.values()], [0] * len(COMMANDS), said)
        older = self.path / "older"
        shutil.copytree(self.path / "saved" / OLDER, older / "saved" / OLDER)
        self.older, _ = self.results(older)

    def model(self, path):
        path.mkdir(exist_ok=True)
        (path / "model.json").write_text(json.dumps(MODEL))

    def run_in(self, path, *words):
        return subprocess.run([str(word) for word in [PROGRAM, *words]], cwd=path, capture_output=True, text=True, errors="replace", timeout=120)

    def results(self, path):
        """What each command makes of the checkpoints in a folder, without names, and how it ended."""
        self.model(path)
        said = {name: self.run_in(path, *words) for name, words in COMMANDS.items()}
        made = {"inspect": said["inspect"].stdout, "verify": said["verify"].stdout}
        if (path / "converted").exists():
            made["convert"] = {file.name: file.read_bytes() for file in (path / "converted").glob("rank-*")}
        if (path / "exported.safetensors").exists():
            made["export"] = (path / "exported.safetensors").read_bytes()
        if (path / "resumed.json").exists():
            made["resume"] = {step["step"]: step["loss"] for step in json.loads((path / "resumed.json").read_text())["steps"]}
        return made, said

    def is_unchanged(self, saved):
        """Only spaces of the index may differ."""
        def content(folder):
            return [(file.relative_to(folder), json.loads(file.read_text()) if file.name == "index.json" else file.read_bytes())
                    for file in sorted(folder.glob("step-*/*"))]

        try:
            return content(saved) == content(self.path / "saved")
        except (ValueError, OSError):
            return False

    def is_right(self, name, made, mutation):
        """A run may resume from the older checkpoint. An index that was changed with its checksum may say something else of the
        training, but not of the values."""
        if mutation.is_forged and name in ("inspect", "verify", "resume"):
            return True
        if name == "verify":
            return self.is_unchanged(mutation.saved)
        return made == self.original[name] or (name == "resume" and made == self.older[name])

    def faults(self, number):
        mutation = Mutation(number)
        path = self.path / f"mutant-{number}"
        shutil.copytree(self.path / "saved", path / "saved")
        mutation.apply(path / "saved")
        made, said = self.results(path)
        found = []
        for name, done in said.items():
            # verify names the damage of one of several; a folder without any checkpoint is bad input for every command.
            if done.returncode not in (0, 1, 2) or (done.returncode == 1 and name != "verify"):
                found.append(f"{name}: status {done.returncode}")
            if re.search(r"terminate|what\(\)|std::|json\.exception|basic_string|vector::|[\0-\x08\x0b-\x1f\x7f]", done.stdout + done.stderr):
                found.append(f"{name}: what it says")
            if done.returncode == 0 and not self.is_right(name, made[name], mutation):
                found.append(f"{name}: another result")
        found = [f"{fault}: {said[fault.split(':')[0]].stdout[-300:]}{said[fault.split(':')[0]].stderr[-300:]}" for fault in found]
        left = [file.name for file in path.iterdir() if file.name.startswith(".")]
        if left:
            found.append(f"left behind: {left}")
        shutil.rmtree(path)
        return [f"{number}: {mutation.what}: {fault}" for fault in found]

    def test_no_damage_is_passed_on(self):
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            found = [fault for faults in pool.map(self.faults, range(MUTANTS)) for fault in faults]
        self.assertEqual(found, [], "\n".join(found))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
