"""PyTorch's own tests of CUDA memory, one by one: which pass on its allocator and which under `weir run`.

FOLDER has test_cuda.py of the installed PyTorch's tag and expecttest.py, which are not part of this project.

python3 pytorch_tests.py run FOLDER --output native.json
weir run -- python3 pytorch_tests.py run FOLDER --output weir.json
python3 pytorch_tests.py compare native.json weir.json"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import unittest

PASSED, SKIPPED = "passed", "skipped"


def load(folder, expandable):
    """The tests by id. Expandable segments are chosen as PyTorch's test_cuda_expandable_segments.py chooses them."""
    sys.path.insert(0, folder)
    os.chdir(folder)
    sys.argv = sys.argv[:1]
    import test_cuda
    import torch

    # The module's load_tests() is for PyTorch's own runner.
    kinds = [kind for kind in vars(test_cuda).values() if isinstance(kind, type) and issubclass(kind, unittest.TestCase)]
    tests = {test.id(): test for kind in kinds for test in unittest.defaultTestLoader.loadTestsFromTestCase(kind)}
    if expandable:
        torch.cuda.memory._set_allocator_settings("expandable_segments:True")
        kept = (test_cuda.TestCuda, test_cuda.TestBlockStateAbsorption, test_cuda.TestCudaMallocAsync)
        for kind in kept[:2]:
            kind.expandable_segments = lambda _: True
        tests = {name: test for name, test in tests.items() if isinstance(test, kept)}
    return dict(sorted(tests.items()))


class Outcome(unittest.TestResult):
    """What became of one test, in a word and in the last line of its error."""

    def __init__(self):
        super().__init__()
        self.word, self.why = PASSED, ""

    def _is(self, word, error):
        lines = [line for line in str(error[1]).strip().splitlines() if line.strip()]
        self.word, self.why = word, f"{error[0].__name__}: {' '.join(lines[:3])[:300]}"

    def addFailure(self, test, err):
        self._is("failed", err)

    def addError(self, test, err):
        self._is("failed", err)

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self._is("failed", err)

    def addSkip(self, test, reason):
        self.word, self.why = SKIPPED, reason

    def addExpectedFailure(self, test, err):
        pass

    def addUnexpectedSuccess(self, test):
        self.word, self.why = "failed", "it was expected to fail"


def work(options):
    """Runs the tests named on standard input and writes a line before and after each."""
    names = sys.stdin.read().split("\n")
    tests = load(options.folder, options.expandable)
    with open(options.output, "a", encoding="utf-8") as file:
        for name in names:
            file.write(json.dumps({"begins": name}) + "\n")
            file.flush()
            outcome = Outcome()
            began = time.monotonic()
            tests[name].run(outcome)
            took = round(time.monotonic() - began, 2)
            file.write(json.dumps({"test": name, "outcome": outcome.word, "why": outcome.why, "seconds": took}) + "\n")
            file.flush()


class Worker:
    """A process that runs tests in order. One that ends or hangs is started again behind the test that did it."""

    def __init__(self, options, names, folder, number):
        self.options, self.names, self.results = options, list(names), {}
        self.path = os.path.join(folder, f"{number}.jsonl")
        self.start()

    def start(self):
        open(self.path, "w", encoding="utf-8").close()
        command = [sys.executable, os.path.abspath(__file__), "work", self.options.folder, "--output", self.path]
        command += ["--expandable"] if self.options.expandable else []
        with open(self.path + ".names", "w+", encoding="utf-8") as names, open(self.path + ".log", "ab") as log:
            names.write("\n".join(self.names))
            names.seek(0)
            self.process = subprocess.Popen(command, stdin=names, stdout=log, stderr=log)
        self.size, self.moved = 0, time.monotonic()

    def look(self):
        """Whether it is still at work."""
        if not self.names:
            return False
        size = os.path.getsize(self.path)
        if size != self.size:
            self.size, self.moved = size, time.monotonic()
        ended = self.process.poll() is not None
        late = time.monotonic() - self.moved > self.options.seconds
        if not ended and not late:
            return True
        if late and not ended:
            self.process.kill()
            self.process.wait()
        current = None
        with open(self.path, encoding="utf-8") as file:
            for line in file:
                row = json.loads(line)
                current = row.get("begins", current if "test" not in row else None)
                if "test" in row:
                    self.results[row["test"]] = row
        if current is not None or late:
            current = current or self.names[0]
            word = "hung" if late else "crashed"
            why = f"no end after {self.options.seconds} s" if late else f"its process ended with {self.process.returncode}"
            self.results[current] = {"test": current, "outcome": word, "why": why, "seconds": 0}
        left = [name for name in self.names if name not in self.results]
        if left and len(left) == len(self.names):
            why = f"no test begins: see {self.path}.log"
            self.results.update({name: {"test": name, "outcome": "crashed", "why": why, "seconds": 0} for name in left})
            left = []
        self.names = left
        if left:
            self.start()
        return bool(left)


def run_all(options, names, shards, folder):
    """Neighbours share a process, so that what one leaves behind meets the same tests as in PyTorch's own order."""
    size = -(-len(names) // shards)
    workers = [Worker(options, names[at : at + size], folder, at) for at in range(0, len(names), size)]
    end = time.monotonic() + options.limit
    while sum(worker.look() for worker in workers) > 0:
        if time.monotonic() > end:
            for worker in workers:
                worker.process.kill()
            break
        time.sleep(0.2)
    return {name: row for worker in workers for name, row in worker.results.items()}


def run(options):
    listed = subprocess.run(
        [sys.executable, os.path.abspath(__file__), "list", options.folder, *(["--expandable"] if options.expandable else [])],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    names = [name for name in listed.stdout.split() if options.only in name]
    if not names:
        sys.exit(f"no test of {options.folder} has {options.only!r} in its name")
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        results = run_all(options, names, options.shards, folder)
        # Tests beside others may run out of memory, or of time: what did not pass runs once more, in a process of its own.
        again = [name for name, row in sorted(results.items()) if row["outcome"] not in (PASSED, SKIPPED)]
        missing = [name for name in names if name not in results]
        write(options, results, missing, began)
        print(f"{len(results)} run in {time.monotonic() - began:.0f} s, {len(missing)} not reached, {len(again)} run again", flush=True)
        for at in range(0, len(again), options.shards):
            part = again[at : at + options.shards]
            for name, row in run_all(options, part, len(part), folder).items():
                first = results[name]
                results[name] = {**row, "first": f"{first['outcome']}: {first['why']}"[:200]}
            write(options, results, missing, began)
    print(write(options, results, missing, began), flush=True)
    return 0


def write(options, results, missing, began):
    """Keeps what is known so far, and gives it in one line."""
    import torch

    counts = {}
    for row in results.values():
        counts[row["outcome"]] = counts.get(row["outcome"], 0) + 1
    report = {
        "torch": torch.__version__,
        "allocator": os.environ.get("WEIR_CHILD_ALLOCATOR", "pytorch"),
        "expandable": options.expandable,
        "seconds": round(time.monotonic() - began),
        "counts": counts,
        "not_reached": missing,
        "results": [results[name] for name in sorted(results)],
    }
    with open(options.output, "w", encoding="utf-8") as file:
        json.dump(report, file, indent=1)
        file.write("\n")
    return f"{', '.join(f'{count} {word}' for word, count in sorted(counts.items()))} in {report['seconds']} s"


def compare(options):
    """Every test that passes on PyTorch's allocator should pass here."""
    reports = []
    for path in (options.native, options.weir):
        with open(path, encoding="utf-8") as file:
            reports.append({row["test"]: row for row in json.load(file)["results"]})
    native, ours = reports
    passed = [name for name, row in native.items() if row["outcome"] == PASSED]
    both = [name for name in passed if ours.get(name, {}).get("outcome") == PASSED]
    print(f"{len(passed)} tests pass on PyTorch's allocator, {len(both)} of them under Weir")
    for name in passed:
        row = ours.get(name, {"outcome": "not run", "why": ""})
        if row["outcome"] != PASSED:
            print(f"{row['outcome']:8} {name}: {row['why']}")
    for name, row in ours.items():
        if row["outcome"] == PASSED and name in native and native[name]["outcome"] != PASSED:
            print(f"gained   {name}: {native[name]['outcome']} on PyTorch's allocator")
    return 0 if len(both) == len(passed) else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("run", "list", "work"):
        command = commands.add_parser(name)
        command.add_argument("folder", type=os.path.abspath)
        command.add_argument("--expandable", action="store_true", help="as test_cuda_expandable_segments.py does")
        command.add_argument("--output", type=os.path.abspath, default="pytorch-tests.json")
        command.add_argument("--only", default="", help="tests whose name holds this")
        command.add_argument("--shards", type=int, default=4, help="processes at a time")
        command.add_argument("--seconds", type=float, default=60, help="for one test")
        command.add_argument("--limit", type=float, default=3600, help="seconds for all of them, and again for those that run twice")
    command = commands.add_parser("compare")
    command.add_argument("native")
    command.add_argument("weir")
    options = parser.parse_args()
    if options.command == "list":
        # What the module prints while it is loaded goes elsewhere.
        out, sys.stdout = sys.stdout, sys.stderr
        out.write("\n".join(load(options.folder, options.expandable)) + "\n")
        return 0
    return {"run": run, "work": work, "compare": compare}[options.command](options)


if __name__ == "__main__":
    sys.exit(main())
