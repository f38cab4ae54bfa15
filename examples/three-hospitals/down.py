"""Ends the federation that up.py has started; --remove also removes its folder."""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
FEDROUTE = [sys.executable, "-c", "from fedroute.cli import main; main()"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=HERE / "federation", help="the folder that up.py was given")
    parser.add_argument("--remove", action="store_true", help="remove the folder too: keys, weights, report")
    given = parser.parse_args()
    for settings in sorted(given.out.glob("*/settings.json")):
        kind = "hub" if settings.parent.name == "hub" else "site"
        subprocess.run([*FEDROUTE, kind, "stop", str(settings.parent)], stdout=subprocess.DEVNULL, check=True)
    if given.remove and given.out.exists():
        shutil.rmtree(given.out)


if __name__ == "__main__":
    main()
