"""Plants single changes in a copy of the source and tells which of them no unit or property test notices.

    make mutants ARGS="--package store/queue --sample 40 --seed 1"     tries 40 of its changes, drawn by lot
    make mutants ARGS="--package store/queue --again"                  tries those again that nothing noticed
    make mutants                                                       prints what is known so far

A mutant is tried with the unit tests of its package, then with property tests and the examples in docstrings: those that
call its function, quick ones first, until one fails. Which test calls which function is found out first, and again for test
files that have changed. Everything runs in pure Python, which is the specification. Results are kept in build/mutants, so a
run goes on where it was stopped; with the same seed a larger sample contains the smaller one.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from tools.mutants.changes import Mutant, mutants_of

ROOT = Path(__file__).parents[2]
WORK = ROOT / "build" / "mutants"
RESULTS = WORK / "results.jsonl"
MAP = WORK / "map.json"
SURVIVORS = WORK / "survivors.md"
COPIED = ("src", "tests", "tools", "examples", "docs", "pyproject.toml", "README.md")
ALSO = ("tests/unit/test_docstrings.py", "tests/unit/test_docs.py")
"""Tests of all packages: examples in docstrings, and the reference of settings, which has every key and default."""
REFERENCE = "tests/unit/test_docs.py::test_the_reference"
MOST_SECONDS = 60.0
"""Of tests for one mutant, as measured for the map. What only later tests would notice counts as not noticed."""
PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "tools.mutants.pytest_hooks", "-p", "no:cacheprovider")

Tests = dict[str, tuple[float, frozenset[str]]]
"""For each test its seconds and the functions it calls."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--package", action="append", default=[], help="folder below src/rocketline; may be repeated")
    parser.add_argument("--sample", type=int, default=40, help="mutants of each package (40)")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--again", action="store_true", help="only those that were not noticed before")
    parser.add_argument("--jobs", type=int, default=2, help="processes (2)")
    options = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    results = read_results()
    chosen: list[tuple[str, Mutant]] = []
    for package in options.package:
        for mutant in sample_of(package, options.sample, options.seed):
            known = results.get(mutant.key)
            if known is None or (options.again and known["outcome"] == "survived"):
                chosen.append((package, mutant))
    if chosen:
        try_all(chosen, options.jobs)
    report(read_results())


def sample_of(package: str, size: int, seed: str) -> list[Mutant]:
    """Drawn by the hash of each, so that a change of one file leaves the rest of the sample as it was."""
    base = ROOT / "src" / "rocketline"
    # The fast path runs only with compiled code.
    files = sorted(path for path in (base / package).rglob("*.py") if "fastpath" not in path.parts)
    if not files:
        raise SystemExit(f"{base / package} has no Python files: --package names a folder below {base}")
    found = [mutant for path in files for mutant in mutants_of(path.relative_to(base).as_posix(), path.read_bytes())]
    return sorted(found, key=lambda mutant: hashlib.sha256(f"{seed}|{mutant.key}".encode()).digest())[:size]


def try_all(chosen: list[tuple[str, Mutant]], jobs: int) -> None:
    copies: SimpleQueue[Path] = SimpleQueue()
    for number in range(jobs):
        copies.put(fresh_copy(WORK / f"copy{number}"))
    tests = test_map(WORK / "copy0", sorted({own_tests(mutant) for _, mutant in chosen}), jobs)

    def one(package: str, mutant: Mutant) -> None:
        copy = copies.get()
        outcome, by = try_mutant(mutant, copy, tests)
        copies.put(copy)
        row = {"key": mutant.key, "package": package, "mutant": str(mutant), "outcome": outcome, "by": by}
        with RESULTS.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(f"{outcome:10} {mutant} {by}", flush=True)

    with ThreadPoolExecutor(jobs) as pool:
        for future in [pool.submit(one, package, mutant) for package, mutant in chosen]:
            future.result()


def fresh_copy(copy: Path) -> Path:
    shutil.rmtree(copy, ignore_errors=True)
    for source in map(ROOT.joinpath, COPIED):
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.so", "target")
            shutil.copytree(source, copy / source.name, ignore=ignored)
        else:
            shutil.copy(source, copy / source.name)
    return copy


def try_mutant(mutant: Mutant, copy: Path, tests: Tests) -> tuple[str, str]:
    """What became of it, and the test that noticed it."""
    selected = tests_for(mutant, tests)
    if not selected:
        return "survived", "no test calls it"
    path = copy / "src" / "rocketline" / mutant.file
    source = path.read_bytes()
    choice = copy / "choice.txt"
    limits_s = {test: round(30 + 20 * tests[test][0]) for test in selected}  # a busy machine does not reach them
    choice.write_text("".join(f"{limit_s} {test}\n" for test, limit_s in limits_s.items()))
    files = sorted({test.partition("::")[0] for test in selected})
    plant(path, mutant.planted(source))
    ended, text = run(copy, ["-x", "--tb=no", *files], {"MUTANTS_SELECT": str(choice)}, 600 + sum(limits_s.values()))
    plant(path, source)
    if ended is None or "+ Timeout +" in text:
        return "hung", ""
    if ended == 0:
        return "survived", ""
    return "noticed", next(iter(failed_tests(text)), f"pytest ended with {ended}")


def failed_tests(text: str) -> list[str]:
    """Named at the end of what pytest printed."""
    found = (re.match(r"(?:FAILED|ERROR) (.+?)(?: - |$)", line) for line in text.splitlines())
    return [match[1] for match in found if match]


def plant(path: Path, source: bytes) -> None:
    path.write_bytes(source)
    for cached in path.parent.glob(f"__pycache__/{path.stem}.*"):
        cached.unlink()  # its time stamp has whole seconds only


def own_tests(mutant: Mutant) -> str:
    return f"tests/unit/{mutant.file.partition('/')[0]}"


def tests_for(mutant: Mutant, tests: Tests) -> list[str]:
    """Tests that call the function of a mutant; for a line that runs on import, those that call anything of its file."""
    name, own = f"{mutant.file}:{mutant.function}", own_tests(mutant) + "/"
    if mutant.function:
        covering = [test for test, (_, called) in tests.items() if name in called]
    else:
        covering = [test for test, (_, called) in tests.items() if any(each.startswith(name) for each in called)]
        covering = covering or [test for test in tests if test.startswith(own)]  # a file without functions
        covering += [test for test in tests if test.startswith(REFERENCE) and test not in covering]
    # There may be more than there is time for. A file of settings is called by most tests: the reference comes first. An
    # object is made by more tests than use it: those that do come first.
    first = () if mutant.function else (REFERENCE,)
    kind = name.removesuffix("__init__") if name.endswith(".__init__") else ""

    def only_makes(test: str) -> bool:
        return bool(kind) and not any(each.startswith(kind) and each != name for each in tests[test][1])

    covering.sort(
        key=lambda test: (not test.startswith(first), not test.startswith(own), only_makes(test), tests[test][0])
    )
    seconds, selected = 0.0, covering[:1]
    for test in covering[1:]:
        seconds += tests[test][0]
        if seconds < MOST_SECONDS:
            selected.append(test)
    return selected


def test_map(copy: Path, folders: list[str], jobs: int) -> Tests:
    """Which test of these folders calls which functions, made anew for test files that have changed."""
    known = json.loads(MAP.read_text()) if MAP.exists() else {}
    folders = [*folders, "tests/property"]
    files = sorted(path for folder in folders for path in (copy / folder).rglob("test_*.py"))
    hashes = {str(path.relative_to(copy)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    hashes |= {file: hashlib.sha256((copy / file).read_bytes()).hexdigest() for file in ALSO}
    if stale := [file for file, digest in hashes.items() if known.get(file, {}).get("hash") != digest]:
        print(f"mapping {len(stale)} files of tests", flush=True)
        record = copy / "record"
        record.mkdir()
        tests = ["-n", str(jobs), *stale, "-k", f"not test_docs.py or {REFERENCE.rpartition(':')[2]}"]
        ended, text = run(copy, tests, {"MUTANTS_RECORD": str(record)}, 3600)
        failing = failed_tests(text)
        if ended != 0 and not failing:
            raise SystemExit(f"the tests did not run to their end:\n{text[-4000:]}")
        for test in failing:
            print(f"left out, because it fails without any mutant: {test}", flush=True)
        known |= {file: {"hash": hashes[file], "tests": {}} for file in stale}
        for line in (line for part in record.iterdir() for line in part.open()):
            row = json.loads(line)
            if row["test"] not in failing:
                known[row["test"].partition("::")[0]]["tests"][row["test"]] = [row["seconds"], row["called"]]
        MAP.write_text(json.dumps(known))
    rows = [row for file in hashes for row in known[file]["tests"].items()]
    return {test: (seconds, frozenset(called)) for test, (seconds, called) in rows}


def run(copy: Path, arguments: list[str], settings: dict[str, str], limit_s: float) -> tuple[int | None, str]:
    """How pytest ended in the copy, None if it had to be stopped; and what it printed."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"} | settings
    environment |= {"ROCKETLINE_IMPL": "python", "PYTHONPATH": f"{copy / 'src'}:{copy}:{ROOT}"}
    command = [*PYTEST, "-m", "not slow and not interop", *arguments]
    with (copy / "output.txt").open("w+") as out:
        process = subprocess.Popen(command, cwd=copy, env=environment, stdout=out, stderr=out, start_new_session=True)
        try:
            ended: int | None = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            ended = None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # also what a test started and left behind
            process.wait()
        out.seek(0)
        return ended, out.read()


def read_results() -> dict[str, dict[str, str]]:
    """The last result of each mutant."""
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    return {row["key"]: row for row in map(json.loads, lines)}


def report(results: dict[str, dict[str, str]]) -> None:
    """Print the score of each package, and write the table of survivors."""
    survivors = [row for row in results.values() if row["outcome"] == "survived"]
    survived = Counter(row["package"] for row in survivors)
    for package, count in sorted(Counter(row["package"] for row in results.values()).items()):
        noticed = count - survived[package]
        print(f"{package:24} {noticed:4} of {count:4} noticed, {100 * noticed / count:.0f} %")
    rows = sorted(f"| {row['mutant'].replace('|', '&#124;')} | {row['by']} |" for row in survivors)
    SURVIVORS.write_text("\n".join(["| mutant | remark |", "| --- | --- |", *rows]) + "\n")
    print(f"{len(survivors)} survivors are in {SURVIVORS.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
