"""Makes the test models: python3 make.py OUT_DIR

  OUT_DIR/script/VARIANT.gguf   known by hand        with VARIANT.json, the right values
  OUT_DIR/tiny/VARIANT.gguf     random weights       with VARIANT.json
  OUT_DIR/bad/NAME.gguf         one fault each       with manifest.json

Does nothing when OUT_DIR already holds what these generators make. Standard library only. The large
model of synthetic.py is made apart.
"""
import hashlib
import os
import sys

import bad_files
import script_model
import tiny_llama
from gguf_writer import save


def fingerprint():
    here, total = os.path.dirname(os.path.abspath(__file__)), hashlib.sha256()
    for name in sorted(os.listdir(here)):
        if name.endswith(".py") and name != "synthetic.py":
            with open(os.path.join(here, name), "rb") as f:
                total.update(f.read())
    return total.hexdigest()


def main(out):
    stamp, mark = os.path.join(out, "test_models.stamp"), fingerprint()
    if os.path.exists(stamp) and open(stamp).read() == mark:
        return
    for folder, module in (("script", script_model), ("tiny", tiny_llama)):
        for variant in module.VARIANTS:
            content, right = module.build(variant)
            save(os.path.join(out, folder, variant + ".gguf"), content)
            save(os.path.join(out, folder, variant + ".json"), right)
    manifest = {}
    for name, verdict, fault, content in bad_files.files():
        save(os.path.join(out, "bad", name + ".gguf"), content)
        manifest[name] = {"right": verdict, "fault": fault}
    save(os.path.join(out, "bad", "manifest.json"), manifest)
    save(stamp, mark.encode())
    print("test models are in", out)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: make.py OUT_DIR")
    main(sys.argv[1])
