"""What `cmake --install` and `cpack` make works from any folder: the program, its manual and completions, the libraries.

python3 install_test.py BUILD SOURCES   with LOCKSTEP_CAMPAIGN=whole in the environment also the slow builds
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

BUILD, SOURCES = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
WHOLE = os.environ.get("LOCKSTEP_CAMPAIGN") == "whole"
CONSUMER = SOURCES / "tests" / "install" / "consumer"
# Root may run Open MPI, and the compiler's cache knows what this build has compiled.
ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
               "CCACHE_BASEDIR": str(SOURCES), "CCACHE_NOHASHDIR": "yes"}
# What a build of the collectives must not need.
NEEDLESS = ("Boost", "CLI11", "benchmark", "GTest", "OpenMP")


def run(*words, cwd=None, **more):
    done = subprocess.run([str(word) for word in words], cwd=cwd, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          stdin=subprocess.DEVNULL, timeout=600, env={**os.environ, **ENVIRONMENT, **more})
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, words))} has ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.work.name)
        cls.prefix = cls.folder / "installed"
        run("cmake", "--install", BUILD, "--prefix", cls.prefix)
        cls.program = cls.prefix / "bin" / "lockstep"

    @classmethod
    def tearDownClass(cls):
        cls.work.cleanup()

    def consumer(self, prefix, name):
        """A program that finds the library there, and its output with ranks as threads and as processes."""
        build = self.folder / name
        run("cmake", "-S", CONSUMER, "-B", build, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}")
        run("cmake", "--build", build)
        worlds = {"threads": (build / "ring_sum", "3")}
        for library, flags in (("openmpi", ["--oversubscribe"]), ("mpich", [])):
            if shutil.which(f"mpirun.{library}") and (next(prefix.glob(f"**/liblockstep_{library}.so"), None)):
                worlds[library] = (f"mpirun.{library}", *flags, "-n", "3", build / "ring_sum")
        self.assertGreater(len(worlds), 1, "no MPI library")
        for world, words in worlds.items():
            with self.subTest(world=world):
                # Open MPI keeps files of all worlds in one folder, where another test may be starting one.
                lines = sorted(run(*words, cwd=self.folder, TMPDIR=str(self.folder)).splitlines())
                self.assertEqual(lines, [f"rank {rank} of 3: 6" for rank in range(3)])

    def check_program(self, program):
        run(program, "--version", cwd=self.folder)
        run(program, "train", "ddp", "--ranks", "2", "--steps", "2", "--json", "ddp.json", cwd=self.folder)
        run(program, "plot", "loss", "ddp.json", "--output", "ddp.svg", cwd=self.folder)
        self.assertIn("ring", run(program, "lab", "list", cwd=self.folder))

    def test_program(self):
        self.check_program(self.program)
        run(self.program, "lab", "export", "1", "lab", "--solution", cwd=self.folder)
        self.assertIn("100", run(self.program, "grade", "1", "--submission", "lab", cwd=self.folder))

    def test_libraries(self):
        self.consumer(self.prefix, "of_all")
        text = next(self.prefix.glob("**/default_text.txt"))
        losses = run(self.folder / "of_all" / "train_ddp", text).split()
        run(self.program, "train", "ddp", "--ranks", "2", "--steps", "2", "--global-batch", "4", "--data", text, "--json", "two.json",
            cwd=self.folder)
        expected = json.loads((self.folder / "two.json").read_text())["steps"]
        self.assertEqual(losses, [f"{step['loss']:.6f}" for step in expected])

    def test_collectives_alone(self):
        """Are configured without the packages of the program, and none of their sources reads these. The campaign builds them."""
        build, prefix = self.folder / "collectives", self.folder / "installed_collectives"
        without = [f"-DCMAKE_DISABLE_FIND_PACKAGE_{name}=ON" for name in NEEDLESS]
        run("cmake", "--preset", "release", "-S", SOURCES, "-B", build, "-DLOCKSTEP_PARTS=collectives", *without, cwd=SOURCES)
        objects = set(re.findall(r"^(collectives/\S+\.o): ", run("ninja", "-C", build, "-t", "targets", "all"), re.MULTILINE))
        self.assertGreater(len(objects), 60)
        deps = {name: text for name, text in re.findall(r"^(\S+\.o): #deps.*?\n((?: .*\n)*)", run("ninja", "-C", BUILD, "-t", "deps"),
                                                        re.MULTILINE)}
        compared = 0
        for name in objects & set(deps):
            self.assertNotRegex(deps[name], r"/boost/|/CLI/|/benchmark/", name)
            compared += 1
        self.assertGreater(compared, 50)
        if WHOLE:
            run("cmake", "--build", build)
            run("cmake", "--install", build, "--prefix", prefix)
            self.consumer(prefix, "of_collectives")

    def test_manual(self):
        path = self.prefix / "share/man/man1/lockstep.1"
        page = path.read_text().replace("\\-", "-")
        sections = re.findall(r"^\.SS lockstep (.*)$", page, re.MULTILINE)
        self.assertGreater(len(sections), 60)
        commands = re.findall(r"^  ([a-z]+) ", run(self.program, "--help").split("Subcommands:")[1].split("Examples:")[0], re.MULTILINE)
        self.assertGreater(len(commands), 10)
        self.assertLessEqual(set(commands), set(sections))
        self.assertIn("--global-batch", page[page.index(".SS lockstep train ddp"):page.index(".SS lockstep train zero")])
        if shutil.which("groff"):
            self.assertEqual(run("groff", "-man", "-ww", "-z", "-Tutf8", path), "")

    def test_completion(self):
        script = self.prefix / "share/bash-completion/completions/lockstep"
        for words, expected in ((["tra"], {"train"}), (["train", "d"], {"ddp"}), (["train", "ddp", "--bucket"], {"--bucket-bytes"}),
                                (["bench", "all_r"], {"all_reduce"}), (["train", "ddp", "--json", "fil"], set())):
            line = " ".join(["lockstep", *words])
            found = run("bash", "-c", f'source {script}; COMP_WORDS=({line}); COMP_CWORD={len(words)}; _lockstep; '
                        'printf "%s\\n" "${COMPREPLY[@]}"', PATH=f"{self.program.parent}:{os.environ['PATH']}")
            self.assertEqual(set(found.split()), expected, line)

    def test_completion_of_other_shells(self):
        """zsh with stand-ins for what its completion system calls; fish completes a line by itself."""
        zsh = self.prefix / "share/zsh/site-functions/_lockstep"
        path = f"{self.program.parent}:{os.environ['PATH']}"
        stand_ins = ("compdef() { print -r -- compdef $*; }; compadd() { print -rl -- ${(P)2}; }; _files() { print -r -- files; }; ")
        tried = 0
        for words, expected in ((["tra"], {"train"}), (["train", "d"], {"ddp"}), (["train", "ddp", "--bucket"], {"--bucket-bytes"}),
                                (["train", "ddp", "--json", "fil"], {"files"})):
            line = " ".join(["lockstep", *words])
            if shutil.which("zsh"):
                # Sourced, and as a file of fpath.
                for load in (f"source {zsh}; words=({line}); CURRENT={len(words) + 1}; _lockstep",
                             f"fpath=({zsh.parent} $fpath); autoload -Uz _lockstep; words=({line}); CURRENT={len(words) + 1}; _lockstep"):
                    found = set(run("zsh", "-f", "-c", stand_ins + load, PATH=path).split("\n")) - {"", "compdef _lockstep lockstep"}
                    self.assertEqual(found, expected, line)
                    tried += 1
            if shutil.which("fish") and expected != {"files"}:
                script = self.prefix / "share/fish/vendor_completions.d/lockstep.fish"
                found = run("fish", "--no-config", "-c", f'source {script}; complete -C "{line}"', PATH=path)
                self.assertEqual({each.split()[0] for each in found.splitlines()}, expected, line)
                tried += 1
        if tried == 0:
            self.skipTest("neither zsh nor fish")

    @unittest.skipUnless(WHOLE, "takes a minute")
    def test_package(self):
        if not shutil.which("dpkg-shlibdeps"):
            self.skipTest("no dpkg-shlibdeps")
        run("cpack", "-G", "DEB", "-B", self.folder / "package", "-D", "CPACK_DEBIAN_COMPRESSION_TYPE=none", cwd=BUILD)
        package, = (self.folder / "package").glob("lockstep_*.deb")
        run("dpkg-deb", "-x", package, self.folder / "root")
        self.assertRegex(run("dpkg-deb", "-f", package, "Depends"), r"libc6.*libfmt|libfmt.*libc6")
        self.check_program(self.folder / "root/usr/bin/lockstep")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
