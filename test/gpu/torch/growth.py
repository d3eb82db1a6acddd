"""Leaks and differences on a GPU: `weir analyze` and `weir diff` name the lines.

python3 test/gpu/torch/growth.py [COMMAND OF WEIR ...], such as: python3 test/gpu/torch/growth.py node dist/cli/main.js

Three small trainings under `weir record`: a plain one, one that keeps a tensor of every step (`# leaks`), and one with one more
activation (`# added`)."""

import glob
import json
import os
import subprocess
import sys
import tempfile

SCRIPT = os.path.abspath(__file__)
STEPS = 12


def train(kind):
    import torch

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = torch.nn.Linear(1024, 4096), torch.nn.Linear(4096, 1024)

        def forward(self, x):
            hidden = torch.relu(self.first(x))
            if kind == "added":
                hidden = hidden * torch.sigmoid(hidden)  # added
            return self.second(hidden)

    net = Net().cuda()
    optimizer = torch.optim.AdamW(net.parameters())
    kept = []
    for _ in range(STEPS):
        output = net(torch.randn(2048, 1024, device="cuda"))
        if kind == "leaks":
            kept.append(output.detach().clone())  # leaks
        output.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def line_of(word):
    with open(SCRIPT, encoding="utf-8") as file:
        return next(number for number, line in enumerate(file, 1) if line.rstrip().endswith(f"# {word}"))


def main(command):
    failed = 0

    def check(is_good, words):
        nonlocal failed
        failed += not is_good
        print("PASS" if is_good else "FAIL", words, flush=True)

    def weir(*arguments):
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=120, check=False)
        if done.returncode not in (0, 1):
            print(done.stdout[-1000:], done.stderr[-2000:])
        return done

    with tempfile.TemporaryDirectory() as folder:
        files = {}
        for kind in ("plain", "leaks", "added"):
            weir("record", "-q", "-o", os.path.join(folder, f"{kind}.weir"), "--", sys.executable, SCRIPT, "--kind", kind)
            # Its name has the number of the process.
            [files[kind]] = glob.glob(os.path.join(folder, f"{kind}.*weir"))
        name = os.path.basename(SCRIPT)
        leaks = json.loads(weir("analyze", "--json", files["leaks"]).stdout)["leaks"]
        found = [(site["file"], site["line"], site["bytesPerStep"]) for site in leaks["sites"]]
        wanted = line_of("leaks")
        is_named = len(found) == 1 and found[0][0].endswith(name) and found[0][1:] == (wanted, 2048 * 1024 * 4)
        check(is_named, f"analyze: a leak at line {wanted}: {found}")
        plain = json.loads(weir("analyze", "--json", files["plain"]).stdout)["leaks"]
        check(plain["steps"] >= STEPS - 3 and plain["sites"] == [], f"analyze: no leak in {plain['steps']} steps")
        difference = json.loads(weir("diff", "--json", files["plain"], files["added"]).stdout)
        growth = sorted(((site["after"] - site["before"], site["label"]) for site in difference["sites"]), reverse=True)
        wanted = line_of("added")
        check(f"{name}:{wanted} " in growth[0][1] and growth[0][0] > 0, f"diff: the activation of line {wanted} grew most: {growth[:2]}")
        done = weir("diff", files["plain"], files["leaks"], "--fail-if", "leaks>0")
        check(done.returncode == 1, f"diff --fail-if 'leaks>0' ends with {done.returncode}")
        print(weir("diff", files["plain"], files["added"]).stdout)
    return failed


if __name__ == "__main__":
    if sys.argv[1:2] == ["--kind"]:
        train(sys.argv[2])
    else:
        sys.exit(1 if main(sys.argv[1:] or ["weir"]) else 0)
