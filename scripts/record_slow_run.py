"""Run pytest and record its last line, the commit and the time in tests/faults/last_slow_run.txt."""

import datetime
import platform
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "tests" / "faults" / "last_slow_run.txt"


def run(*words: str) -> str:
    """Return what a command prints."""
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def main(command: list[str]) -> int:
    """Run the tests, print their output as it comes, and write the record."""
    lines = []
    with subprocess.Popen(["env", *command], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line.rstrip())
    changed = " with local changes" if run("git", "status", "--porcelain", "--untracked-files=no") else ""
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR", "!!!"))]  # !!!: interrupted
    RECORD.write_text(
        "\n".join(
            [
                f"commit   {run('git', 'rev-parse', 'HEAD')}{changed}",
                f"finished {datetime.datetime.now(datetime.UTC).isoformat(timespec='minutes')}",
                f"python   {platform.python_version()} on {platform.system()}",
                f"command  {' '.join(command[command.index('pytest') :])}",
                f"result   {lines[-1].strip('= ') if lines else 'nothing ran'}",
                *failed,
            ]
        )
        + "\n",
        encoding="utf-8",
    )
    return process.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
