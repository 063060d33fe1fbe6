"""Stands in for rocprofv3 and rocprof-compute, named by the file it is copied to; behaves as the file `behaviour` says.

Takes the documented options only. Runs the program after `--`, then copies the sample files under the names that the
tool gives them, one set for each of two processes.
"""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main(argv: list[str]) -> int:
    behaviour = (HERE / "behaviour").read_text().split()
    options, program = argv[: argv.index("--")], argv[argv.index("--") + 1 :]
    counting = "--pmc" in options or options[0] == "profile"
    if "hangs" in behaviour or (counting and "hangs-counting" in behaviour):
        print("attaching", flush=True)
        time.sleep(600)
    done = subprocess.run(program, check=False)
    if "crashes" in behaviour or (counting and "crashes-counting" in behaviour):
        print("rocprofv3: \x1b[31mHSA_STATUS_ERROR", file=sys.stderr)
        os.abort()
    if done.returncode or "silent" in behaviour:
        return done.returncode
    write(options, counting)
    return 0


def write(options: list[str], counting: bool) -> None:
    samples = HERE / "samples"
    if options[0] == "profile":
        into = Path(options[options.index("-p") + 1]) / "ratchet" / "MI300X_A1"
        into.mkdir(parents=True)
        shutil.copy(samples / "MI300X_A1_pmc_perf.csv", into / "pmc_perf.csv")
        return
    assert options[options.index("-f") + 1] == "csv"
    into, name = Path(options[options.index("-d") + 1]), options[options.index("-o") + 1]
    into.mkdir(parents=True, exist_ok=True)
    kind = "counter_collection" if counting else "kernel_trace"
    for pid in ("101", "102"):
        shutil.copy(samples / f"new_{kind}.csv", into / f"{name.replace('%pid%', pid)}_{kind}.csv")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
