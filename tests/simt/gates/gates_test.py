#!/usr/bin/env python3
"""Reads compiled kernels: registers, stack, local memory, and the instructions that must be there.

  gates_test.py RULES OBJECT... -- SPILLING

RULES is kernels.txt. Every kernel of the OBJECTs has a rule and the other way round. SPILLING is an
object that breaks the rules, so that a reader that sees nothing is found out. Disassembles with the
cuobjdump and nvdisasm that requirements.txt pins, in a venv under build/, made when it is missing.
"""

import fcntl
import pathlib
import re
import subprocess
import sys
import venv

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
ARCHITECTURES = ["sm_80", "sm_90"]
# "/*0320*/  @!P0 LDG.E.U16 R71, [R8.64] ;"
INSTRUCTION = re.compile(r"\s*/\*\w{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)")
LOCAL_MEMORY = re.compile(r"^(LDL|STL)\b")


def tool():
    """The path of cuobjdump, nvdisasm beside it."""
    place, pins = ROOT / "build" / "gates", HERE / "requirements.txt"
    place.parent.mkdir(exist_ok=True)
    with open(ROOT / "build" / "gates.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = place / "made"
        if not made.exists() or made.read_text() != pins.read_text():
            venv.create(place, with_pip=True, clear=True)
            subprocess.run([place / "bin/pip", "install", "--quiet", "--disable-pip-version-check",
                            "-r", pins], check=True)
            made.write_text(pins.read_text())
    return next(place.rglob("bin/cuobjdump"))


class Kernel:
    def __init__(self):
        self.registers = self.stack = self.local = None
        self.instructions = []


def plain_name(symbol):
    """copy_kernel of _ZN8headrace4cuda43_GLOBAL__N__..11copy_kernelEPh...: the last of the
    nested names, each behind its length."""
    if not symbol.startswith("_Z"):
        return symbol
    rest, name = re.sub(r"^_ZN?", "", symbol), symbol
    while match := re.match(r"(\d+)", rest):
        length = int(match.group(1))
        name = rest[match.end():match.end() + length]
        rest = rest[match.end() + length:]
    return name


def read(dump, path):
    """{(kernel, architecture): Kernel} of an object."""
    text = subprocess.run([dump, "--dump-resource-usage", "-sass", path], capture_output=True,
                          text=True, check=True).stdout
    kernels, architecture, current = {}, None, None
    for line in text.splitlines():
        if match := re.match(r"\s*arch = (sm_\w+)", line):
            architecture, current = match.group(1), None
        elif match := re.match(r"\s*Function\s*:?\s*(\w+)\s*:?\s*$", line):
            current = kernels.setdefault((plain_name(match.group(1)), architecture), Kernel())
        elif current and (match := re.search(r"REG:(\d+) STACK:(\d+) .*LOCAL:(\d+)", line)):
            # Instances of a template are one kernel: the worst of each figure counts.
            found = zip(match.groups(), (current.registers, current.stack, current.local))
            current.registers, current.stack, current.local = (
                max(int(new), old or 0) for new, old in found)
        elif current and (match := INSTRUCTION.match(line)):
            current.instructions.append(match.group(1))
    return kernels


def read_rules(path):
    """{kernel: ({architecture: ceiling}, [pattern])}"""
    rules = {}
    for line in pathlib.Path(path).read_text().splitlines():
        words = line.split("#")[0].split()
        if words:
            name, *numbers = words[:3]
            rules[name] = (dict(zip(ARCHITECTURES, map(int, numbers))), words[3:])
    return rules


def violations_of(name, architecture, kernel, ceiling, patterns):
    where = f"{name} on {architecture}"
    if kernel.registers is None or not kernel.instructions:
        yield f"{where}: nothing could be read of it"
        return
    if kernel.registers > ceiling:
        yield f"{where}: {kernel.registers} registers, at most {ceiling}"
    if kernel.stack or kernel.local:
        yield f"{where}: {kernel.stack} bytes of stack, {kernel.local} of local memory"
    if bad := sorted({i for i in kernel.instructions if LOCAL_MEMORY.match(i)}):
        yield f"{where}: local memory: {' '.join(bad)}"
    for pattern in patterns:
        only, _, rest = pattern.rpartition(":")
        if only and not architecture.endswith(only):
            continue
        if not any(re.match(rest, i) for i in kernel.instructions):
            yield f"{where}: no instruction {rest}"


def violations(rules, kernels):
    found = []
    for (name, architecture), kernel in sorted(kernels.items()):
        if name not in rules:
            found.append(f"{name}: no rule for it")
            continue
        ceilings, patterns = rules[name]
        found += violations_of(name, architecture, kernel, ceilings[architecture], patterns)
    for name in rules:
        for architecture in ARCHITECTURES:
            if (name, architecture) not in kernels:
                found.append(f"{name} on {architecture}: not compiled")
    return found


def unprobed(facade, probes):
    """Functions of the facade's list (comments of dev.h) that probes.cu never calls."""
    comments = "\n".join(l for l in facade.splitlines() if l.startswith("//"))
    names = set(re.findall(r"\b(?:void|float2?|uint\d+(?:_t)?|bool|T) (\w+)\(", comments))
    names |= set(re.findall(r"     (\w+) alike", comments))
    return sorted(n for n in names if not re.search(rf"\b{n}\b[<(]", probes))


def self_test(spilling):
    """What the reader must see in a bad object."""
    rules = {"spilling": ({a: 16 for a in ARCHITECTURES}, ["HMMA"]), "absent": ({}, [])}
    found = "\n".join(violations(rules, spilling))
    for part in ["of stack", "local memory: LDL STL", "registers, at most 16",
                 "no instruction HMMA", "absent on sm_80: not compiled"]:
        if part not in found:
            sys.exit(f"gates: a planted violation is not seen: {part}\n{found}")
    if "spilling: no rule" not in "\n".join(violations({}, spilling)):
        sys.exit("gates: a kernel without a rule is not seen")
    if unprobed("//   void a(int x)      b alike\n//   T c(T* p)", "c(1)") != ["a", "b"]:
        sys.exit("gates: a wrapper without a probe is not seen")


def main():
    if "--" not in sys.argv or len(sys.argv) < 5:
        sys.exit(__doc__)
    rules, *objects = sys.argv[1:sys.argv.index("--")]
    dump = tool()
    self_test(read(dump, sys.argv[-1]))
    kernels = {}
    for path in objects:
        kernels.update(read(dump, path))
    found = violations(read_rules(rules), kernels)
    missing = unprobed((ROOT / "kernels/cuda/dev.h").read_text(), (HERE / "probes.cu").read_text())
    found += [f"dev.h: {name} has no probe" for name in missing]
    for (name, architecture), kernel in sorted(kernels.items()):
        print(f"{name:20} {architecture}  {kernel.registers:3} registers, "
              f"{len(kernel.instructions):4} instructions")
    print("\n".join(found) if found else f"gates: {len(kernels)} kernels keep to the rules")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
