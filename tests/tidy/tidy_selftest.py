#!/usr/bin/env python3
"""Plants one violation at a time in a small clean tree; tidy must name exactly that one."""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import tidy  # noqa: E402

CLEAN = {
    "README.md": "x\n",
    "protocol/README.md": "x\n",
    "protocol/link.h": "#pragma once\n",
    "protocol/link.cc": '#include "protocol/link.h"\nint f() { return 1; }\n',
    "tests/README.md": "`tests/protocol/`, `tests/kernels/`, `tests/simt/`\n",
    "tests/protocol/link_test.cc": '#include "protocol/link.h"\n',
    "kernels/README.md": "`cpu/` and `cuda/` hold bodies\n",
    "kernels/ops.h": "struct Add {};\nCost cost(const Add& op);\nvoid reference(const Add& op);\n",
    "kernels/add_ref.cc": "void reference(const Add& op) {}\nCost cost(const Add& op) { }\n",
    "kernels/cpu/add_avx2.cc": "static int f() { return 1; }\n",
    "kernels/cuda/dev.h": '#include "cuda_body/dev_body.h"\n',
    "kernels/cuda/add.cu": '#include "kernels/cuda/dev.h"\n__global__ void k() {}\n',
    "tests/simt/kernel_add_test.cc": "int x;\n",
    "tests/kernels/add_test.cc": '#include "kernels/ops.h"\n',
    "worker/README.md": "x\n",
    "worker/main.cc": '#include "kernels/ops.h"\n#include "protocol/link.h"\nint main() {}\n',
    "coordinator/README.md": "x\n",
    "coordinator/view.h": '#include "protocol/link.h"\n',
}
LONG_BODY = "".join(f"  x += {i};\n" for i in range(70))


class Planted(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.root)
        for name, text in CLEAN.items():
            self.write(name, text)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def expect(self, *parts):
        found = tidy.violations(self.root)
        self.assertEqual(len(found), 1, found)
        for part in parts:
            self.assertIn(part, found[0])

    def test_clean(self):
        self.assertEqual(tidy.violations(self.root), [])

    def test_large_means_of_proof(self):
        for i in range(8):
            self.write(f"tests/simt/nccl/part{chr(97 + i)}.h", "int x;\n// why\n\n" * 160)
        for i in range(4):
            self.write(f"tests/simt/cudart/part{chr(97 + i)}.h", "int x;\n" * 499)
        self.assertEqual(tidy.violations(self.root), [])
        self.write("tests/simt/warp.h", "int x;\n" * 499)
        self.expect("emulator and stand-ins have 3775 lines", f"at most {tidy.PROOF_LINES_MAX}")

    def test_long_file(self):
        self.write("protocol/link.h", "\n" * 501)
        self.expect("protocol/link.h", "501 lines")
        self.write("protocol/link.h", "\n" * 500)
        self.assertEqual(tidy.violations(self.root), [])

    def test_long_functions(self):
        for head in ["int f(int x) {", "Foo::Foo(int x) : a_{1}, b_(2) {", "template <class T>\nT f() {",
                     "class A {\n  int g() const override {", "namespace {\nauto f() -> int {",
                     'TEST_CASE("a { b") {', "struct B : A<int> {\n  bool operator()(int a) {"]:
            with self.subTest(head):
                self.write("protocol/link.h", head + "\n" + LONG_BODY + "}\n};\n")
                self.expect("protocol/link.h", "at most 70")

    def test_no_false_length(self):
        many = "".join(f"int f{i}() {{ return '{{' + {i}; }}\n" for i in range(100))
        data = "const int kTable[] = {\n" + "  1,\n" * 100 + "};\n"
        words = 'const char* k = "{{{"; // {{{\n#define M(x) do { \\\n  x; } while (0)\n'
        member = "struct S {\n" + "  int a{1};\n" * 100 + "};\n"
        self.write("protocol/link.h", words + many + data + member)
        self.assertEqual(tidy.violations(self.root), [])

    def test_long_python_and_shell(self):
        self.write("tests/tool.py", "def f(x):\n" + "  x += 1\n" * 70)
        self.expect("tests/tool.py:1", "f has 71 lines")
        self.write("tests/tool.py", "#!/bin/sh\n")
        (self.root / "tests/tool.py").unlink()
        self.write("tests/tool", "#!/bin/sh\nf() {\n" + "  x\n" * 70 + "}\n")
        self.expect("tests/tool:2", "f has 72 lines")

    def test_arrows(self):
        for name, include in [("protocol/link.h", "kernels/ops.h"), ("kernels/ops2.h", "protocol/link.h"),
                              ("worker/a.h", "coordinator/view.h"), ("coordinator/a.h", "worker/a.h"),
                              ("protocol/link.h", "tests/protocol/x.h"), ("worker/b.h", "b.h"),
                              ("coordinator/a.h", "kernels/ops.h"), ("worker/b.h", "deploy/cli/a.h")]:
            with self.subTest(name + " <- " + include):
                self.write(name, f'#include "{include}"\n')
                self.expect(name + ":1", include)
                (self.root / name).unlink()
                if name in CLEAN:
                    self.write(name, CLEAN[name])

    def test_kernel_sources(self):
        name = "kernels/cuda/add.cu"
        for line, part in [('#include "kernels/ops.h"', "alone"), ("#include <cstdint>", "alone"),
                           ('asm("bar;");', "asm"), ("k<<<1, 2>>>();", "<<<"),
                           ("__shared__ int a[4];", "__shared__")]:
            with self.subTest(line):
                self.write(name, line + "\n")
                self.expect(name + ":1", part)
        self.write(name, CLEAN[name] + "void __launch_bounds__(32) wide() {\n" + LONG_BODY + "}\n")
        self.expect(name, "wide has 72 lines")
        self.write(name, CLEAN[name])
        self.write("kernels/cuda/mul.cu", "")
        self.expect("kernels/cuda/mul.cu", "tests/simt/kernel_mul_test.cc")

    def test_source_without_test(self):
        self.write("worker/pool.cc", "int x;\n")
        self.expect("worker/pool.cc", "tests/worker/pool_test.cc")
        self.write("tests/protocol/pool_test.cc", "int x;\n")
        self.expect("found in another folder")

    def test_body_without_test(self):
        self.write("kernels/cpu/mul_avx512.cc", "static int x;\n")
        self.expect("mul_test.cc")

    def test_operation_without_reference(self):
        self.write("kernels/add_ref.cc", "Cost cost(const Add& op) { }\nvoid reference(const Add& op);\n")
        self.expect("Add has no body of reference()")

    def test_words(self):
        for word, text in [("marker", "// FIX" + "ME later\n"), ("marker", "# TO" + "DO\n"),
                           ("machine", '"/wo' + 'rk/main/x"\n'), ("machine", "https://py" + "pi.org\n")]:
            with self.subTest(text):
                self.write("protocol/link.h", text)
                self.expect("protocol/link.h:1", word)

    def test_folders(self):
        self.write("misc/a.txt", "x\n")
        self.expect("misc: not part of the fixed top level")
        shutil.rmtree(self.root / "misc")
        (self.root / "worker/README.md").unlink()
        self.expect("worker: no README.md")
        self.write("worker/README.md", "x\n")
        self.write("worker/parts/a.h", "x\n")
        self.expect("worker/parts", "README.md")

    def test_weak_symbols(self):
        compiler = shutil.which("c++") or shutil.which("g++-12") or shutil.which("clang++-14")
        self.assertIsNotNone(compiler)
        for text, bad in [("inline int f(int a) { return a; } int (*p)(int) = f;", True),
                          ("static int f(int a) { return a; } int (*p)(int) = f;", False)]:
            self.write("build/kernels/a_avx2.cc", text)
            target = self.root / "build/kernels/a_avx2.cc.o"
            subprocess.run([compiler, "-c", "-O2", str(target)[:-2], "-o", str(target)], check=True)
            found = tidy.violations(self.root, self.root / "build")
            self.assertEqual(any("weak symbol f(int)" in v for v in found), bad, found)


if __name__ == "__main__":
    unittest.main()
