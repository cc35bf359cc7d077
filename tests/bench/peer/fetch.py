"""Fetches peers from the package index, each into a folder of its own; versions are pinned."""

import pathlib
import subprocess
import sys
import tarfile
import venv

ROOT = pathlib.Path(__file__).resolve().parents[3]
HOME = ROOT / "build" / "peers"


class Unable(Exception):
    """A peer that cannot be built or run, and why; the comparison goes on without it."""


def say(text):
    print(f"peers: {text}", file=sys.stderr, flush=True)


def command(arguments, what, **options):
    """Runs to the end; what failed becomes a reason."""
    try:
        subprocess.run([str(a) for a in arguments], check=True, **options)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Unable(f"{what} failed: {error}") from error


def source(package, version, folder, inside):
    """The unpacked source package; `inside` is the folder in it that is wanted."""
    stem = f"{package.replace('-', '_')}-{version}"
    tree = folder / stem / inside
    if tree.exists():
        return tree
    folder.mkdir(parents=True, exist_ok=True)
    say(f"fetching {package} {version}")
    # The build backend is asked for the metadata, nothing is built.
    command([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", package,
             "-d", folder, f"{package}=={version}"], f"fetching {package}")
    with tarfile.open(folder / f"{stem}.tar.gz") as archive:
        archive.extractall(folder)
    if not tree.exists():
        raise Unable(f"{package} {version} has no {inside}")
    return tree


def environment(folder, packages):
    """A virtual environment with these packages and nothing else; its interpreter."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    command([python, "-m", "pip", "install", "-q", "--only-binary", ":all:", *packages],
            f"installing {' '.join(packages)}")
    return python
