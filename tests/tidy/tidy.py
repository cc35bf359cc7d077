#!/usr/bin/env python3
"""Checks the shape of the source tree; prints one line for each violation.

  tidy.py TREE [BUILD]     with BUILD also the symbols of the object files with special flags

The rules are those of the README files: short files and functions, includes that follow the
arrows, a test for each source, a reference for each operation, a README for each folder.
"""

import os
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import functions  # noqa: E402

FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70
FOLDERS = ["protocol", "kernels", "worker", "coordinator", "deploy", "tests"]
TOP_LEVEL = set(FOLDERS) | {".ci", ".clang-format", ".gitignore", "CHANGELOG.md", "CMakeLists.txt",
                            "CMakePresets.json", "LICENSE", "README.md"}
MAY_INCLUDE = {
    "protocol": {"protocol"},
    "kernels": {"kernels"},
    "worker": {"worker", "kernels", "protocol"},
    "coordinator": {"coordinator", "protocol"},
    "deploy": {"deploy", "coordinator", "worker", "kernels", "protocol"},
    "tests": set(FOLDERS),
}
# Bodies of one operation share its test.
BODY_SUFFIX = re.compile(r"_(portable|avx2|avx512|avx512vnni|amx|ref|reference)$")
CPP = {".cc", ".h", ".cu", ".cuh"}
# The body of kernels' facade is chosen by include path: nvcc's, or the emulator's in the tests.
BY_INCLUDE_PATH = {("kernels/cuda/dev.h", "cuda_body/dev_body.h")}
# What a kernel source may include; the rest reaches it through the facade.
KERNEL_INCLUDES = "kernels/cuda/"
# The emulator and the stand-ins, but not the facade's emulated body, tests and planted mistakes:
# lines that hold code. A means of proof stays small enough to be read.
PROOF = re.compile(r"tests/simt/(cudart/|nccl/)?(?!.*(_test|_ranks|_case|_programs|_buffer)\.)"
                   r"(?!configurations|every_order|numbers)[a-z]+\.(cc|h)$")
PROOF_LINES_MAX = 3500
# Spelled in halves so that this file does not trip over itself.
MARKERS = re.compile(r"\b(FIX" r"ME|TO" r"DO|X" r"XX)\b")
MACHINE = re.compile(
    r"(?<![\w.$}])/(work|root|home/\w+|tmp/w)/"
    r"|\b(pypi\.org|pythonhosted\.org|huggingface\.co|deb\.debian\.org|pkg\.dev|docker\.io)\b")


def tree_files(root):
    """Paths under root that belong to the project, relative: git's view, else all but builds."""
    if (root / ".git").exists():
        git = subprocess.run(
            ["git", "-c", f"safe.directory={root}", "-C", str(root), "ls-files", "-z", "--cached",
             "--others", "--exclude-standard"], capture_output=True)
        if git.returncode == 0:
            names = git.stdout.decode().split("\0")
            return sorted(pathlib.PurePosixPath(n) for n in names if n and (root / n).is_file())
    skip = {".git", "build", ".cache", "__pycache__", "shared"}
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = [f for f in folders if f not in skip]
        relative = pathlib.PurePosixPath(pathlib.Path(folder).relative_to(root).as_posix())
        found += [relative / n for n in names if not n.endswith(".pyc")]
    return sorted(found)


class Tree:
    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.files = tree_files(self.root)
        self.texts = {}
        for path in self.files:
            try:
                self.texts[path] = (self.root / path).read_text(encoding="utf-8")
            except UnicodeDecodeError:
                pass  # data

    def cpp(self):
        return [(p, t) for p, t in self.texts.items() if p.suffix in CPP]


def language(path, text):
    if path.suffix in CPP:
        return functions.cpp_functions
    first = text.split("\n", 1)[0]
    if path.suffix == ".py" or (first.startswith("#!") and "python" in first):
        return functions.python_functions
    if path.suffix == ".sh" or (first.startswith("#!") and first.endswith("sh")):
        return functions.shell_functions
    return None


def check_lengths(tree):
    for path, text in tree.texts.items():
        finder = language(path, text)
        if not finder:
            continue
        lines = text.count("\n")
        if lines > FILE_LINES_MAX:
            yield f"{path}: {lines} lines, at most {FILE_LINES_MAX}"
        for name, first, last in finder(text):
            if last - first + 1 > FUNCTION_LINES_MAX:
                yield (f"{path}:{first}: {name} has {last - first + 1} lines, "
                       f"at most {FUNCTION_LINES_MAX}")


def check_includes(tree):
    for path, text in tree.cpp():
        folder = path.parts[0]
        for number, line in enumerate(text.splitlines(), 1):
            match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
            if not match:
                continue
            target = match.group(1).split("/")[0]
            if (str(path), match.group(1)) in BY_INCLUDE_PATH:
                continue
            if target not in FOLDERS or "/" not in match.group(1):
                yield f'{path}:{number}: "{match.group(1)}" is not named from the top level'
            elif target not in MAY_INCLUDE.get(folder, set()):
                yield f"{path}:{number}: {folder} must not include {match.group(1)}"


def check_kernel_sources(tree):
    """A .cu file sees kernels/cuda/ alone, and reaches the GPU through wrappers and launch()."""
    for path, text in tree.cpp():
        if path.suffix != ".cu" or path.parts[0] == "tests":
            continue
        for number, line in enumerate(text.splitlines(), 1):
            include = re.match(r'\s*#\s*include\s+[<"]([^">]+)[">]', line)
            if include and not include.group(1).startswith(KERNEL_INCLUDES):
                yield f"{path}:{number}: a kernel source includes {KERNEL_INCLUDES} alone"
            code = line.split("//")[0]
            banned = re.search(r"<<<|\basm\b|__shared__|__constant__|__activemask|\bprintf\b", code)
            if banned:
                yield f"{path}:{number}: {banned[0]} in a kernel source"


def check_tests(tree):
    tests = {p.name for p in tree.files if p.parts[0] == "tests"}
    by_folder = {(p.parts[1], p.name) for p in tree.files
                 if p.parts[0] == "tests" and len(p.parts) > 2}
    for path in tree.files:
        if path.suffix not in {".cc", ".cu"} or path.parts[0] == "tests" or path.name == "main.cc":
            continue
        if path.suffix == ".cu":
            if ("simt", f"kernel_{path.stem}_test.cc") not in by_folder:
                yield f"{path}: no tests/simt/kernel_{path.stem}_test.cc"
            continue
        stem = BODY_SUFFIX.sub("", path.stem)
        # What calls the CUDA runtime is tested against its stand-in.
        if "cuda" in str(path) and ("simt", f"{stem}_test.cc") in by_folder:
            continue
        if (path.parts[0], f"{stem}_test.cc") not in by_folder:
            where = " (found in another folder)" if f"{stem}_test.cc" in tests else ""
            yield f"{path}: no tests/{path.parts[0]}/{stem}_test.cc{where}"


def check_references(tree):
    ops = tree.texts.get(pathlib.PurePosixPath("kernels/ops.h"), "")
    bodies = "\n".join(functions.blank(t) for p, t in tree.cpp()
                       if p.parts[0] == "kernels" and p.suffix == ".cc")
    for op in sorted(set(re.findall(r"\bCost cost\(const (\w+)&", ops))):
        for what in ["void reference", "Cost cost"]:
            if not re.search(rf"{what}\(const {op}&[^)]*\)\s*\{{", bodies):
                yield f"kernels/ops.h: {op} has no body of {what.split()[1]}()"


def check_proof(tree):
    lines = sum(1 for path, text in tree.cpp() if PROOF.match(str(path))
                for line in functions.blank_comments(text).splitlines() if line.strip())
    if lines > PROOF_LINES_MAX:
        yield (f"tests/simt: emulator and stand-ins have {lines} lines of code, "
               f"at most {PROOF_LINES_MAX}")


def check_words(tree):
    for path, text in tree.texts.items():
        for number, line in enumerate(text.splitlines(), 1):
            if MARKERS.search(line):
                yield f"{path}:{number}: leftover marker {MARKERS.search(line).group(0)}"
            if path.name != "tidy.py" and path.name != "LICENSE" and MACHINE.search(line):
                yield f"{path}:{number}: names a machine or registry: {MACHINE.search(line)[0]}"


def check_folders(tree):
    for name in sorted({p.parts[0] for p in tree.files} - TOP_LEVEL):
        yield f"{name}: not part of the fixed top level"
    present = set(tree.files)
    for folder in FOLDERS:
        readme = pathlib.PurePosixPath(folder) / "README.md"
        if not any(p.parts[0] == folder for p in tree.files):
            continue
        if readme not in present:
            yield f"{folder}: no README.md"
            continue
        # A folder below has its own page or a word in its parent's.
        below = {p.parts[1] for p in tree.files if p.parts[0] == folder and len(p.parts) > 2}
        for name in sorted(below):
            own = pathlib.PurePosixPath(folder) / name / "README.md"
            if own not in present and not re.search(rf"\b{name}/", tree.texts[readme]):
                yield f"{folder}/{name}: neither a README.md nor named in {readme}"


def check_symbols(build):
    """Object files with flags of their own must not offer inline library code to others: the
    linker might choose their copy, and an old processor would then meet new instructions."""
    for path in sorted(pathlib.Path(build, "kernels").rglob("*.o")):
        if not re.search(r"avx|amx", path.name):
            continue
        out = subprocess.run(["nm", "-C", "--defined-only", str(path)], capture_output=True,
                             text=True, check=True).stdout
        for line in out.splitlines():
            parts = line.split(maxsplit=2)
            kind, name = parts[-2], parts[-1]
            if kind in "WwVvu" and not re.match(r"__?(asan|odr|san|tsan|ubsan)|DW\.ref", name):
                yield f"{path.name}: weak symbol {name}"


CHECKS = [check_lengths, check_includes, check_kernel_sources, check_tests, check_references,
          check_proof, check_words, check_folders]


def violations(root, build=None):
    tree = Tree(root)
    found = [v for check in CHECKS for v in check(tree)]
    if build:
        found += check_symbols(build)
    return found


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: tidy.py TREE [BUILD]")
    found = violations(*sys.argv[1:])
    for violation in found:
        print(violation)
    print(f"tidy: {len(found)} violations in {len(tree_files(pathlib.Path(sys.argv[1])))} files")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
