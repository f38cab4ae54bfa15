"""report.html: one self-contained file about a run, from what its directory holds."""

from pathlib import Path


def write(run_dir: Path | str) -> Path:
    """Writes report.html beside the other files of a run and returns its path. What is not there is said in words.

    Raises InputError where the folder holds no run at all, RunFailed where the disk is full."""
    from fedroute.durable import write as whole
    from fedroute.report.page import page
    from fedroute.report.reading import read

    path = Path(run_dir) / "report.html"
    whole(path, page(read(Path(run_dir))).encode(errors="replace"))
    return path
