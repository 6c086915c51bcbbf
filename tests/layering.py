"""Checks the include rules, that included files exist, the rules of source files, that no two files define types of one name,
and that no file hides a library's function from its neighbours; then that each check can fail.

collectives/base <- collectives <- parallel <- bench <- cli; models includes only collectives/base. The order of the folders inside
collectives/, models/ and parallel/ stands in their READMEs. Algorithms use communicators: only transports include a transport.
"""

import pathlib
import re
import sys

# Folder of a file -> prefixes that it may include. The longest matching folder decides.
MAY_INCLUDE = {
    "collectives/base/": ["collectives/base/"],
    "collectives/": ["collectives/"],
    "models/": ["models/", "collectives/base/"],
    "parallel/": ["parallel/", "models/", "collectives/"],
    "parallel/pipeline/schedules/": ["parallel/pipeline/schedules/", "collectives/base/"],
    "parallel/pipeline/simulator/": ["parallel/pipeline/simulator/", "parallel/pipeline/schedules/", "parallel/plan/result.h",
                                     "collectives/base/"],
    "bench/results/": ["bench/results/", "parallel/", "models/", "collectives/"],
    "bench/collectives/": ["bench/collectives/", "bench/results/", "collectives/"],
    "bench/pairs/": ["bench/pairs/", "bench/results/", "collectives/"],
    "bench/burn_in/": ["bench/burn_in/", "bench/pairs/", "bench/results/", "parallel/", "models/", "collectives/"],
    "bench/calibrate/": ["bench/calibrate/", "bench/collectives/", "bench/results/", "parallel/", "models/", "collectives/"],
    "bench/techniques/": ["bench/techniques/", "bench/results/", "parallel/", "models/", "collectives/"],
    "labs/": ["labs/", "parallel/", "models/", "collectives/"],
    "cli/": ["cli/", "labs/", "bench/", "parallel/", "models/", "collectives/"],
    "tests/": ["tests/", "cli/", "bench/", "parallel/", "models/", "collectives/"],
}
TOP_FOLDERS = sorted({folder.split("/")[0] for folder in MAY_INCLUDE})

# Header -> the files that may include it. The longest matching header decides.
TRANSPORT = "collectives/transport/"
RESTRICTED = {
    f"{TRANSPORT}transport.h": ["collectives/communicator.h", TRANSPORT, "labs/process/", "tests/"],
    f"{TRANSPORT}signature.h": ["collectives/observer.h", TRANSPORT, "tests/"],
    f"{TRANSPORT}launch/launch.h": [f"{TRANSPORT}launch/", "parallel/", "bench/", "cli/", "tests/"],
    f"{TRANSPORT}launch/launch_symmetric.h": [f"{TRANSPORT}launch/", "parallel/", "bench/", "tests/"],
    f"{TRANSPORT}failure/later_interruption.h": [TRANSPORT, "cli/", "tests/"],
    TRANSPORT: [TRANSPORT, "tests/"],
    "mpi.h": [f"{TRANSPORT}mpi/", "tests/smpi/"],
    "gloo/": [f"{TRANSPORT}gloo/"],
    "nccl.h": [f"{TRANSPORT}nccl/", "tests/emulator/"],
}
CUDA = re.compile(r"^(cuda|cublas|curand|cooperative_groups|cub/|thrust/)")
MAY_USE_CUDA = re.compile(rf"cuda[^/]*\.(cc|cu|cuh|h)$|/cuda/|^tests/emulator/|^{TRANSPORT}nccl/")

# JSON that anyone may have written is read within bounds, and text of any origin becomes JSON, by collectives/base/json_text.h. The
# others read what this program has just written, or a header as a stream.
JSON = re.compile(r"\b[Jj]son::(?:sax_)?parse\(|\.dump\(")
MAY_USE_JSON = ("collectives/base/json_text.cc", "models/gpt/safetensors.cc", "parallel/rank/report.cc", "parallel/checkpoint/checkpoints.cc",
                "bench/results/registered.cc", "tests/")

DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(\w+)[ \t]*(.*)$", re.MULTILINE)
MOST_LINES = 300
ANONYMOUS = re.compile(r"^namespace \{$.*?^\}  // namespace$", re.MULTILINE | re.DOTALL)
NAMESPACE = re.compile(r"^namespace ([\w:]+) \{$", re.MULTILINE)
TYPE = re.compile(r"^(?:class|struct|enum class|enum)(?: alignas\(\w+\))? (\w+)(?: final)?(?: : [^;{]*)? \{", re.MULTILINE)

# A function of a namespace: its name, and the place behind it.
FUNCTION = re.compile(r"^(?!using|namespace|return|class|struct|enum|friend|typedef|extern|static_assert|[ }/#])[\w:<>,&*\[\] ]+?[\s&*>](\w+)\(",
                      re.MULTILINE)
NUMBER = re.compile(r"(?:std::)?(?:u?int\d*_t|size_t|ptrdiff_t|int|long|unsigned|float|double|bool|char|Count)")
TEXT = re.compile(r"(?:std::)?(?:string|string_view)|char\*|(?:std::filesystem|fs)::path")


def wrong_layer(name, included):
    folder = max((f for f in MAY_INCLUDE if name.startswith(f)), key=len)
    if included.split("/")[0] in TOP_FOLDERS and not included.startswith(tuple(MAY_INCLUDE[folder])):
        yield f"{folder} may include {', '.join(MAY_INCLUDE[folder])}"
    header = max((h for h in RESTRICTED if included.startswith(h)), key=len, default=None)
    if header and not name.startswith(tuple(RESTRICTED[header])):
        yield f"only {', '.join(RESTRICTED[header])} may"
    if CUDA.match(included) and not MAY_USE_CUDA.search(name):
        yield "only files with cuda in their name, and the NCCL transport, may"


def exists(root, included):
    return (root / included).is_file() or (root / f"{included}.in").is_file()


def faults_of(root, name, text):
    """The faults of the file `name` (relative to root) with the content `text`."""
    for directive, rest in DIRECTIVE.findall(text):
        if directive == "include":
            included = rest[1:].split(rest[:1].replace("<", ">"))[0]
            for rule in wrong_layer(name, included):
                yield f"{name} includes {included}: {rule}"
            if rest.startswith('"') and not exists(root, included):
                yield f"{name} includes {included}: no such file; write its path from the root of the project"
        elif directive != "pragma":
            yield f"{name} has #{directive}: choose a source file in CMake, or write a function"
    if name.endswith((".h", ".cuh")) and "\n#pragma once\n" not in "\n" + text:
        yield f"{name} has no #pragma once"
    if JSON.search(text) and not name.startswith(MAY_USE_JSON):
        yield f"{name} calls {JSON.search(text)[0]}...): use collectives/base/json_text.h"
    yield from too_long(name, text)


def too_long(name, text):
    lines = text.count("\n")
    if lines > MOST_LINES and not name.startswith("tests/"):
        yield f"{name} has {lines} lines: a file of more than {MOST_LINES} is two ideas"


def folders_included(texts):
    """Folder -> the other folders that its files include, each with one such pair of files."""
    arrows = {}
    for name, text in texts.items():
        folder = name.rpartition("/")[0]
        for directive, rest in DIRECTIVE.findall(text):
            included = rest[1:].rpartition("/")[0] if directive == "include" and rest.startswith('"') else folder
            if included.split("/")[0] in TOP_FOLDERS and included != folder:
                arrows.setdefault(folder, {}).setdefault(included, (name, rest.strip('"')))
    return arrows


def rows_of(readme):
    """The rows of folders that a README draws, from the top."""
    drawing = readme.partition("A folder includes only folders below it:\n\n```text\n")[2].partition("```")[0]
    return [row.split() for row in drawing.splitlines()]


def arrows_up(texts, top, readme):
    """Includes between the folders of `top` that do not lead down the rows of its README, and folders that no row names."""
    height = {(f"{top}/{folder}" if folder != top else top): -number for number, row in enumerate(rows_of(readme)) for folder in row}
    arrows = folders_included(texts)
    for folder in sorted({name.rpartition("/")[0] for name in texts if name.startswith(top + "/")} - height.keys()):
        yield f"{folder}/ is in no row of {top}/README.md"
    for folder in height.keys() & arrows.keys():
        for included in height.keys() & arrows[folder].keys():
            if height[included] >= height[folder]:
                name, header = arrows[folder][included]
                yield f"{name} includes {header}: {included}/ is not below {folder}/ in {top}/README.md"


def circles(texts):
    """Folders that include one another, as a path of includes back to the first one."""
    arrows, done = folders_included(texts), set()

    def walk(folder, path):
        if folder in path:
            around = [*path[path.index(folder):], folder]
            steps = [arrows[one][next_one] for one, next_one in zip(around, around[1:])]
            yield "folders in a circle: " + ", ".join(f"{name} includes {header}" for name, header in steps)
        elif folder not in done:
            for included in sorted(arrows.get(folder, {})):
                yield from walk(included, [*path, folder])
            done.add(folder)

    for folder in sorted(arrows):
        yield from walk(folder, [])


def equal_names(texts):
    """Types of one name in one namespace: the linker would keep the functions of one of them, such as its destructor, for both.
    `texts` maps the names of files to their contents."""
    places = {}
    for name, text in texts.items():
        shared = ANONYMOUS.sub("", text)
        namespaces = "::".join(NAMESPACE.findall(shared))
        for type_name in TYPE.findall(shared):
            first = places.setdefault(f"{namespaces}::{type_name}", name)
            if first != name:
                yield f"{first} and {name} both define {namespaces}::{type_name}"
    if not places:
        yield "no types found"


def parameters_at(text, begin):
    """The types of the parameters behind an opening bracket, without const and &, and how many of them a call must give."""
    depth, parts = 0, [""]
    for c in text[begin:]:
        depth += (c in "([{<") - (c in ")]}>")
        if depth < 0:
            break
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    parts = [part.strip() for part in parts if part.strip()]
    types = [re.sub(r"\bconst\b|&", "", re.sub(r"\s*\b\w+$", "", part.split("=")[0].strip())).strip() for part in parts]
    return types, sum("=" not in part for part in parts)


def kind_of(type_name):
    """Types of one kind are converted to each other without a word."""
    if NUMBER.fullmatch(type_name):
        return "number"
    if TEXT.fullmatch(type_name):
        return "text"
    if type_name.lower().endswith("json"):
        return "json"
    return re.sub(r"\bstd::|\s|\bconst\b", "", type_name).replace("span<", "vector<")


def takes(own, wanted):
    """Whether a call with arguments of the kinds `wanted` compiles with parameters of the kinds `own`."""
    return all(mine == theirs or theirs == "json" or mine == "json" and theirs in ("number", "text") for mine, theirs in zip(own, wanted))


def functions_of(text, our_types):
    """(name, kinds of the parameters, how many a call must give) of the functions that no argument's namespace leads to."""
    for found in FUNCTION.finditer(text):
        types, needed = parameters_at(text, found.end())
        words = {word for part in types for word in re.findall(r"(?<![:\w])\w+", re.sub(r"\b(?:std|nlohmann|fmt)::\w+", "", part))}
        if types and not words & our_types:
            yield found[1], [kind_of(part) for part in types], needed


def hidden_functions(texts):
    """Functions in anonymous namespaces that hide one of a header from other files, which are compiled at the same time: their calls
    would convert the arguments, and call the wrong one. A type of ours among the parameters leads a call to the right one."""
    our_types = {type_name for text in texts.values() for type_name in TYPE.findall(text)}
    shared = {}
    for name, text in texts.items():
        if name.endswith(".h"):
            for function, kinds, needed in functions_of(ANONYMOUS.sub("", text), our_types):
                shared.setdefault(function, []).append((name, kinds, needed))
    for name, text in texts.items():
        for own in ANONYMOUS.findall(text) if name.endswith(".cc") else []:
            for function, kinds, needed in functions_of(own, our_types):
                for header, wanted, least in shared.get(function, []):
                    if least <= len(kinds) and needed <= len(wanted) and takes(kinds, wanted) and not list(wrong_layer(name, header)):
                        yield f"{name} hides {function}() of {header} from files that are compiled with it: choose another name"


# (file, text, part of the expected fault)
PLANTED = [
    ("models/gpt/gpt.cc", '#include "collectives/communicator.h"\n', "models/ may include"),
    ("collectives/base/error.cc", '#include "collectives/stream.h"\n', "collectives/base/ may include"),
    ("collectives/stream.cc", '#include "parallel/train/trainer.h"\n', "collectives/ may include"),
    ("parallel/pipeline/schedules/check.cc", '#include "parallel/pipeline/simulator/simulate.h"\n', "schedules/ may include"),
    ("parallel/pipeline/simulator/draw.cc", '#include "parallel/pipeline/execution/stages.h"\n', "simulator/ may include"),
    ("bench/results/measure.cc", '#include "bench/collectives/collective.h"\n', "bench/results/ may include"),
    ("bench/collectives/point.cc", '#include "bench/techniques/ps.h"\n', "bench/collectives/ may include"),
    ("bench/techniques/ps.cc", '#include "bench/collectives/collective.h"\n', "bench/techniques/ may include"),
    ("parallel/data/ddp.cc", '#include "collectives/transport/threads/threads.h"\n', "only collectives/transport/"),
    ("collectives/all_reduce/ring.cc", '#include "collectives/transport/transport.h"\n', "communicator.h"),
    ("collectives/all_reduce/ring.cc", "#include <mpi.h>\n", "transport/mpi/"),
    ("collectives/transport/threads/threads.cc", "#include <mpi.h>\n", "transport/mpi/"),
    ("collectives/transport/modules/modules.cc", "#include <gloo/context.h>\n", "transport/gloo/"),
    ("parallel/train/trainer.cc", "# include <cuda_runtime.h>\n", "cuda in their name"),
    ("models/gpt/gpt.cc", '#include "models/no_such_file.h"\n', "no such file"),
    ("models/gpt/gpt.cc", '#include "gpt.h"\n', "no such file"),
    ("models/gpt/gpt.cc", "#ifdef NDEBUG\n", "#ifdef"),
    ("models/gpt/gpt.cc", "#define TWICE(x) x, x\n", "#define"),
    ("models/gpt/gpt.h", "int one();\n", "#pragma once"),
    ("models/gpt/gpt.cc", "const auto file = nlohmann::json::parse(text);\n", "json_text.h"),
    ("cli/plan.cc", "write_file(path, file.dump(1));\n", "json_text.h"),
    ("models/gpt/gpt.cc", "\n" * 301, "301 lines"),
]
# (file, text): an include that does not lead down.
PLANTED_UP = [
    ("parallel/plan/planted.h", '#include "parallel/train/trainer.h"\n'),
    ("parallel/data/planted.cc", '#include "parallel/sharded/unit.h"\n'),
    ("collectives/all_gather/planted.cc", '#include "collectives/operations/split.h"\n'),
    ("collectives/transport/decorators/planted.cc", '#include "collectives/transport/threads/threads.h"\n'),
    ("models/planted.h", '#include "models/layers/block.h"\n'),
    ("models/no_such_folder/planted.h", ""),
]
# Parameters of a function shown() in an anonymous namespace, and whether it hides that of json_text.h.
HIDING = [("std::int32_t token", True), ("const std::string& text", True), ("double x, int digits = 3", True), ("const Slice& data", False),
          ("double x, int digits", False), ("", False)]


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    files = sorted(path for folder in TOP_FOLDERS for path in (root / folder).rglob("*")
                   if path.suffix in (".h", ".cuh", ".cc", ".cu"))
    texts = {path.relative_to(root).as_posix(): path.read_text() for path in files}
    faults = [fault for name, text in texts.items() for fault in faults_of(root, name, text)]
    plots = {path.relative_to(root).as_posix(): path.read_text() for path in sorted((root / "plots").glob("*.py"))}
    faults += [fault for name, text in plots.items() for fault in too_long(name, text)]
    readmes = {top: (root / top / "README.md").read_text() for top in ("collectives", "models", "parallel")}
    faults += [fault for top, readme in readmes.items() for fault in arrows_up(texts, top, readme)]
    faults += [*circles(texts), *equal_names(texts), *hidden_functions(texts)]
    for name, text, part in PLANTED:
        if not any(part in fault for fault in faults_of(root, name, text)):
            faults.append(f"planted in {name}, but not found: {text.strip() or 'too many lines'}")
    for name, text in PLANTED_UP:
        top = name.partition("/")[0]
        if not any(name.rpartition("/")[0] in fault for fault in arrows_up(texts | {name: text}, top, readmes[top])):
            faults.append(f"planted in {name}, but not found: {text.strip() or 'a folder in no row'}")
    planted = texts | {"bench/results/planted.h": '#include "bench/techniques/ps.h"\n'}
    if not any("bench/results/planted.h includes bench/techniques/ps.h" in fault for fault in circles(planted)):
        faults.append("planted in bench/results/planted.h, but not found: a circle between folders")
    stream = "namespace lockstep {\nclass Stream final : public Base {\n"
    if not list(equal_names(texts | {"models/planted.h": stream})):
        faults.append("planted in models/planted.h, but not found: a second class Stream")
    if list(equal_names({"a.cc": stream, "b.cc": "namespace lockstep {\nnamespace {\nclass Stream {\n}  // namespace\n"})):
        faults.append("a second class Stream in an anonymous namespace is taken for a fault")
    for parameters, hides in HIDING:
        planted = f"namespace lockstep {{\nnamespace {{\n\nstd::string shown({parameters}) {{\n}}\n\n}}  // namespace\n}}\n"
        if any("planted.cc hides shown()" in fault for fault in hidden_functions(texts | {"models/planted.cc": planted})) != hides:
            faults.append(f"planted in models/planted.cc: shown({parameters}) {'is not' if hides else 'is'} found to hide a function")
    if not files or not plots:
        faults.append("no source files found")
    print("\n".join(faults) or f"{len(files) + len(plots)} files obey the rules")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
