"""Stock llama.cpp programs under `residctl run`, against themselves on plain mmap.

Compared are token ids, or a server's answers: llama-completion prints from a logger thread that is not flushed at exit,
and on a busy machine sometimes loses its last tokens.
"""

import argparse
import json
import lzma
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

import split_gguf

PROMPTS = ["The kernel", "In the beginning of the file", "A process that maps a file"]


def skip(why):
    print("skipped:", why)
    sys.exit(77)


def check(ok, what):
    if not ok:
        print("failed:", what)
        sys.exit(1)


class Bench:
    def __init__(self, args):
        self.bin = pathlib.Path(args.bin)
        self.llama = pathlib.Path(args.llama) if args.llama else None
        self.model = pathlib.Path(args.model)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="resid-llama-"))
        # The same kernels in both arms: repacked ones round differently.
        self.env = dict(os.environ, LLAMA_ARG_REPACK="0", LLAMA_LOG_COLORS="off", XDG_STATE_HOME=str(self.folder / "state"))

    def program(self, name):
        path = (self.bin if name == "generate" else self.llama or pathlib.Path("/nonexistent")) / name
        if not path.exists():
            skip(f"{name} is not built (tools/get-llama --programs)")
        return str(path)

    def plain(self, command, **kw):
        return subprocess.run(command, env=self.env, capture_output=True, timeout=240, **kw)

    def paged(self, options, command, report=None, **kw):
        report = report or self.folder / "report.json"
        pathlib.Path(report).unlink(missing_ok=True)
        done = subprocess.run([str(self.bin / "residctl"), "run", "--report", str(report), *options, "--", *command],
                              env=self.env, capture_output=True, timeout=240, **kw)
        if not pathlib.Path(report).exists():
            print(done.stderr.decode(errors="replace"))
            check(False, f"no report (exit code {done.returncode})")
        return done, json.loads(pathlib.Path(report).read_text())

    def generate(self, prompt, n=48, model=None):
        timings = self.folder / "timings.json"
        timings.unlink(missing_ok=True)
        return [self.program("generate"), "--model", str(model or self.model), "--prompt", prompt, "-n", str(n), "-t",
                "1", "--timings", str(timings)]

    def observer(self):
        path = self.bin.parent / "tests" / "observe"
        if not path.exists():
            skip("observe is not built (no headers beside the llama.cpp in use)")
        return [str(path), "--model", str(self.model)]

    def ids(self):
        return json.loads((self.folder / "timings.json").read_text())["token_ids"]


def check_report(report, budget_percent=None, least_reads=1.0):
    """What must hold for every run, whatever it ran."""
    size = report["model"]["bytes"]
    check(report["budget_kept"] is True, f"budget kept: {report['resident_peak_bytes']} of {report['budget_bytes']}")
    check(report["reconcile"]["checks"] > 0, "the accounts were compared with the kernel's")
    check(report["infeasible"] == 0, "nothing was infeasible")
    check(report["faults"]["missing"] > 0, "pages were faulted in")
    if budget_percent is not None:
        check(0 <= size * budget_percent / 100 - report["budget_bytes"] < 4097, "the budget is what was asked for")
        check(report["resident_peak_bytes"] <= report["budget_bytes"], "resident within the budget")
    check(report["bytes_fetched"] >= least_reads * 0.5 * size, f"the model was read through us: {report['bytes_fetched']}")


def case_generate(b):
    for prompt in PROMPTS:
        plain = b.plain(b.generate(prompt))
        check(plain.returncode == 0, "plain: " + plain.stderr.decode(errors="replace"))
        plain_ids = b.ids()
        check(len(plain_ids) == 48, "48 tokens")
        for ram in (50, 25, 100):
            done, report = b.paged(["--ram", f"{ram}%", "--eager-reconcile"], b.generate(prompt))
            check(done.returncode == 0, f"{ram} %: " + done.stderr.decode(errors="replace"))
            check(b.ids() == plain_ids, f"{ram} %: the token ids are the same")
            check(done.stdout == plain.stdout, f"{ram} %: the text is the same")
            if ram < 100:
                check_report(report, ram)
            else:
                check(report["stood_aside"] and report["bytes_fetched"] == 0, "the model was mapped plainly")
        done, report = b.paged(["--ram", "100%", "--stand-aside", "off"], b.generate(prompt))
        check(done.stdout == plain.stdout and b.ids() == plain_ids, "100 % paged: text and token ids are the same")
        check_report(report, 100)
    print("3 prompts at 50, 25 and 100 %: token ids and text equal")


def case_experts(b):
    """ggml tells which experts come next; the output stays what it is."""
    if not (b.bin.parent / "lib" / "libggml-resid.so").exists():
        skip("libggml-resid.so is not built (no ggml-backend-impl.h beside the llama.cpp in use)")
    layers, tokens = 6, 48
    plain = b.plain(b.generate(PROMPTS[0], tokens))
    for ram in (75, 50, 25):
        done, report = b.paged(["--ram", f"{ram}%", "--eager-reconcile"], b.generate(PROMPTS[0], tokens))
        check(done.returncode == 0 and done.stdout == plain.stdout, f"{ram} %: the same text")
        check_report(report, ram)
        routed = report["experts"]
        check(report["policy"] == "expert_foresight", f"the report names the policy: {report['policy']}")
        # One graph for the prompt and one for each further token; each layer speaks once.
        check(routed["layers_routed"] == layers * tokens, f"every layer of every graph: {routed}")
        check(routed["sensor"] == "ggml_backend", "the report names the sensor")
        check(0 < routed["missing_bytes"] < routed["asked_bytes"], f"some were resident: {routed}")
        total = routed["total"]
        check(len(routed["layers"]) == layers and routed["tokens"] >= tokens, f"every layer has its account: {routed}")
        for account in routed["layers"] + [total]:
            where = [account[name] for name in ("pinned", "cached", "prefetched", "missed")]
            check(sum(where) == account["asked"] > 0, f"every slice was somewhere: {account}")
            check(0 <= account["wait_s"] <= report["wall_s"], f"one thread waits no longer than it runs: {account}")
        check(total["asked_bytes"] == routed["asked_bytes"] and total["read_bytes"] == routed["fetched_bytes"], f"{routed}")
        check(total["missed"] > 0 and total["wait_s"] > 0, f"missing slices were waited for: {total}")
        check(b"residctl: experts: " in done.stderr and b" read a token " in done.stderr, done.stderr.decode())
    # Two threads compute what one does, and share what is fetched.
    two = b.generate(PROMPTS[0], tokens)
    two[two.index("-t") + 1] = "2"
    done, report = b.paged(["--ram", "50%"], two)
    check(done.stdout == plain.stdout and report["experts"]["layers_routed"] == layers * tokens, "two threads: the same")
    # Where it is not wanted, nothing is told, and nothing is lost.
    done, report = b.paged(["--ram", "50%", "--experts-sensor", "faults"], b.generate(PROMPTS[0], tokens))
    check(done.stdout == plain.stdout, "without a sensor: the same text")
    check(report["experts"]["layers_routed"] == 0 and report["policy"] == "layer_order_declared", "and no signal")
    check(report["experts"]["sensor"] == "faults", "the report names the sensor")
    # Where the variable is the user's, it stays so; ours is loaded beside his.
    b.env["GGML_BACKEND_PATH"] = "/nonexistent.so"
    done, report = b.paged(["--ram", "50%"], b.generate(PROMPTS[0], tokens))
    check(done.stdout == plain.stdout, "a backend of the user's: the same text")
    check(b"/nonexistent.so" in done.stderr, "which ggml was asked for: " + done.stderr.decode(errors="replace"))
    check(report["experts"]["sensor"] == "ggml_backend", "and the signal is there")
    # Outside a run the library has nobody to tell and stays away.
    b.env["GGML_BACKEND_PATH"] = str(b.bin.parent / "lib" / "libggml-resid.so")
    alone = b.plain(b.generate(PROMPTS[0], tokens))
    check(alone.returncode == 0 and alone.stdout == plain.stdout, "the library alone: the same text")


def case_callback(b):
    """Without the backend, the scheduler's callback tells the same."""
    layers, tokens, long = 6, 24, " ".join(PROMPTS * 4)
    by_callback = ["--experts-sensor", "eval_callback", "--eager-reconcile"]
    for prompt, threads in ((PROMPTS[0], 1), (PROMPTS[1], 2), (long, 1)):
        command = b.generate(prompt, tokens)
        command[command.index("-t") + 1] = str(threads)
        plain = b.plain(command)
        check(plain.returncode == 0, plain.stderr.decode(errors="replace"))
        for ram in (50, 25):
            done, report = b.paged(["--ram", f"{ram}%", *by_callback], command)
            check(done.returncode == 0 and done.stdout == plain.stdout, f"{ram} %, {threads} threads: the same text")
            check_report(report, ram)
            routed = report["experts"]
            check(routed["sensor"] == "eval_callback", f"the report names the sensor: {routed}")
            check(report["policy"] == "expert_foresight", f"known before the model is mapped: {report['policy']}")
            check(routed["layers_routed"] == layers * tokens, f"every layer of every graph: {routed}")
            check(0 < routed["missing_bytes"] < routed["asked_bytes"], f"some were resident: {routed}")
            if not (b.bin.parent / "lib" / "libggml-resid.so").exists():
                continue
            done, report = b.paged(["--ram", f"{ram}%", "--experts-sensor", "ggml_backend"], command)
            check(report["experts"]["sensor"] == "ggml_backend", "the backend was the other one")
            for what in ("asked", "asked_bytes", "layers_routed"):
                check(report["experts"][what] == routed[what], f"{what}: {report['experts']} against {routed}")
    # Two models: each is told of its own, though their tensors are named alike.
    second = b.folder / "second.gguf"
    shutil.copyfile(b.model, second)
    command = [*b.observer(), "--beside", str(second)]
    plain = b.plain(command)
    done, report = b.paged(["--ram", "50%", *by_callback], command)
    check(done.returncode == 0 and done.stdout == plain.stdout, "two models: the same")
    _, one = b.paged(["--ram", "50%", *by_callback], b.observer())
    for what in ("asked", "layers_routed"):
        check(report["experts"][what] == 2 * one["experts"][what], f"{what}: {report['experts']} against {one['experts']}")
    # Where there is no backend to load, nobody has to ask for the callback.
    for part in ("bin/residctl", "lib/libresid-preload.so"):
        (b.folder / "bare" / part).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(b.bin.parent / part, b.folder / "bare" / part)
    command = b.observer()
    b.bin = b.folder / "bare/bin"
    _, report = b.paged(["--ram", "50%"], command)
    check(report["experts"]["sensor"] == "eval_callback", f"without the library: {report['experts']}")
    check(report["experts"]["layers_routed"] == one["experts"]["layers_routed"], "and as much is told")


def case_own_callback(b):
    """A program with an evaluation callback sees with us what it sees without."""
    for threads in ("1", "2"):
        command = [*b.observer(), "--callback", "-t", threads]
        plain = b.plain(command)
        check(plain.returncode == 0 and b" shown 0 " not in plain.stdout, plain.stdout.decode())
        for sensor in ("eval_callback", "auto"):
            done, report = b.paged(["--ram", "50%", "--experts-sensor", sensor], command)
            check(done.stdout == plain.stdout, f"{sensor}: {done.stdout.decode()} against {plain.stdout.decode()}")
            check(report["experts"]["layers_routed"] == 6 * 16, f"{sensor}: {report['experts']}")
    # One that ends a computation gets no further node of it; what the rest then holds is nobody's promise.
    def calls(output):
        return output.decode().splitlines()[1].partition(" data ")[0]
    for end in ("5", "24"):
        command = [*b.observer(), "--callback", "--end-at", end]
        plain = b.plain(command)
        done, report = b.paged(["--ram", "50%", "--experts-sensor", "eval_callback"], command)
        check(calls(done.stdout) == calls(plain.stdout), f"ended at {end}: {done.stdout} against {plain.stdout}")
        check(0 < report["experts"]["layers_routed"] < 6 * 16, f"ended at {end}: {report['experts']}")


def case_own_plugin(b):
    """A program that loads the CPU's code by itself, as one that has it linked in: no plug-in is looked for."""
    plugin = b.llama and b.llama / "libggml-cpu-x64.so"
    if not plugin or not plugin.exists():
        skip("the llama.cpp in use has no libggml-cpu-x64.so")
    if not (b.bin.parent / "lib" / "libggml-resid.so").exists():
        skip("libggml-resid.so is not built (no ggml-backend-impl.h beside the llama.cpp in use)")
    command = [*b.observer(), "--plugin", str(plugin)]
    plain = b.plain(command)
    check(plain.returncode == 0, plain.stderr.decode(errors="replace"))
    for ours in (None, "/nonexistent.so"):
        if ours:
            b.env["GGML_BACKEND_PATH"] = ours
        done, report = b.paged(["--ram", "50%"], command)
        check(done.stdout == plain.stdout, "the same tokens")
        check(report["experts"]["sensor"] == "ggml_backend", f"the backend got in: {report['experts']}")
        check(report["experts"]["layers_routed"] == 6 * 16 and report["policy"] == "expert_foresight", "in time")


def case_lookahead(b):
    """What the next layer will likely choose is fetched ahead; the output stays what it is."""
    if not (b.bin.parent / "lib" / "libggml-resid.so").exists():
        skip("libggml-resid.so is not built (no ggml-backend-impl.h beside the llama.cpp in use)")
    text = b.folder / "text.txt"
    text.write_text((pathlib.Path(__file__).resolve().parents[2] / "docs" / "design.md").read_text()[:6000])
    command = b.generate("A", 160) + ["--follow", str(text)]
    plain = b.plain(command)
    check(plain.returncode == 0, plain.stderr.decode(errors="replace"))
    for ram in (50, 25):
        needed = {}
        for mode in ("off", "on"):
            done, report = b.paged(["--ram", f"{ram}%", "--lookahead", mode, "--history", "off", "--eager-reconcile"], command)
            check(done.returncode == 0 and done.stdout == plain.stdout, f"{ram} %, {mode}: the same text")
            check_report(report, ram)
            e = report["experts"]
            ahead = e["lookahead"]
            needed[mode] = e["missing_bytes"]
            check((ahead["layers"] > 0) == (mode == "on"), f"{ram} %, {mode}: {ahead}")
            if mode == "off":
                check(e["ahead_bytes"] == 0 and ahead["recall"] is None, f"nothing was guessed: {e}")
                continue
            # Which experts are guessed depends on the model and the text alone, not on this machine.
            check(ahead["recall"] >= 0.65, f"recall {ahead['recall']}")
            check(e["ahead_bytes"] + e["on_the_way_bytes"] > 0, f"some came ahead: {e}")
            check(e["total"]["prefetched"] > 0, f"and were counted so: {e['total']}")
        check(needed["on"] < 0.8 * needed["off"], f"{ram} %: less is missing when it is asked for: {needed}")
    # Two threads, and a batch that is looked at but not guessed.
    two = b.generate(PROMPTS[0] * 8, 24)
    two[two.index("-t") + 1] = "2"
    plain = b.plain(two)
    done, report = b.paged(["--ram", "40%", "--lookahead", "on"], two)
    check(done.returncode == 0 and done.stdout == plain.stdout, "two threads and a prompt: the same text")


def case_caps(b):
    """A cap keeps fewer experts than the budget would hold."""
    if not (b.bin.parent / "lib" / "libggml-resid.so").exists():
        skip("libggml-resid.so is not built (no ggml-backend-impl.h beside the llama.cpp in use)")
    plain = b.plain(b.generate(PROMPTS[1], 96))
    missing = {}
    for policy in ("expert_lru", "expert_foresight"):
        for cap in (6, 16, 0):
            done, report = b.paged(["--ram", "95%", "--stand-aside", "off", "--policy", policy, "--cap", str(cap), "--lookahead", "off", "--history", "off"],
                                   b.generate(PROMPTS[1], 96))
            check(done.returncode == 0 and done.stdout == plain.stdout, f"{policy}, cap {cap}: the same text")
            missing[cap] = report["experts"]["missing_bytes"]
        check(missing[6] > missing[16] > missing[0] > 0, f"{policy}: the smaller the cap, the more is missing: {missing}")
    # With room to spare a cap that may be raised is none.
    done, report = b.paged(["--ram", "95%", "--stand-aside", "off", "--cap", "6", "--cap-raise", "--lookahead", "off", "--history", "off"],
                           b.generate(PROMPTS[1], 96))
    check(done.stdout == plain.stdout and report["experts"]["missing_bytes"] < missing[6] / 2, f"raised: {report['experts']['missing_bytes']}")


def case_history(b):
    """What a run has used, the next one has before it is asked for."""
    if not (b.bin.parent / "lib" / "libggml-resid.so").exists():
        skip("libggml-resid.so is not built (no ggml-backend-impl.h beside the llama.cpp in use)")
    tokens = 4
    plain = b.plain(b.generate(PROMPTS[0], tokens))
    state = b.folder / "state" / "residctl" / "experts"
    options = ["--ram", "50%", "--lookahead", "off"]

    def run(*more, policy="auto"):
        done, report = b.paged([*options, "--policy", policy, *more], b.generate(PROMPTS[0], tokens))
        check(done.returncode == 0 and done.stdout == plain.stdout, "the same text: " + done.stderr.decode(errors="replace"))
        check(report["budget_kept"] is True and report["infeasible"] == 0, "the budget is kept")
        return done, report["experts"]

    _, first = run()
    check(first["warm_start"]["slices"] == 0, f"nothing is known yet: {first}")
    files = list(state.glob("*.usage"))
    check(len(files) == 1, f"one history: {files}")
    for policy in ("auto", "expert_lru"):
        _, second = run(policy=policy)
        check(second["warm_start"]["slices"] > 0 and second["total"]["prefetched"] > 0, f"a warm start: {second}")
        check(second["warm_start"]["used_bytes"] > 0, f"of what is used: {second}")
        check(second["missing_bytes"] < first["missing_bytes"], f"fewer were missing: {second} after {first}")
    # A copy elsewhere is the same model; another place, or none, knows nothing.
    copy = b.folder / "copy.gguf"
    shutil.copy(b.model, copy)
    done, report = b.paged(options, b.generate(PROMPTS[0], tokens, copy))
    check(done.stdout == plain.stdout and report["experts"]["warm_start"]["slices"] > 0, "a copy has the history too")
    check(len(list(state.glob("*.usage"))) == 1, "and adds to it")
    _, other = run("--history", str(b.folder / "mine.usage"))
    check(other["warm_start"]["slices"] == 0 and (b.folder / "mine.usage").exists(), "another place begins anew")
    before = files[0].read_bytes()
    _, none = run("--history", "off")
    check(none["warm_start"]["slices"] == 0 and files[0].read_bytes() == before, "off: neither read nor written")
    shown = subprocess.run([str(b.bin / "residctl"), "inspect", str(b.model), "--experts", "--json"], env=b.env,
                           capture_output=True, timeout=60)
    check(shown.returncode == 0, shown.stderr.decode())
    usage = json.loads(shown.stdout)["usage"]
    check(usage["file"] == str(files[0]) and usage["tokens"] > 4 * tokens - 1 and len(usage["layers"]) == 6, f"{usage}")
    shares = [e["share"] for e in usage["layers"][0]["hottest"]]
    check(len(shares) == 32 and shares == sorted(shares, reverse=True) and 0 < shares[0] <= 1, f"{shares}")
    # What is damaged is named, set aside, and begun anew; the run is as ever.
    files[0].write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
    done, damaged = run()
    check(damaged["warm_start"]["slices"] == 0, "a damaged one is not used")
    check(b".usage.damaged" in done.stderr, done.stderr.decode())
    check(pathlib.Path(str(files[0]) + ".damaged").exists() and files[0].exists(), "it is kept, and a new one there")
    done, _ = run()
    check(b"damaged" not in done.stderr, "told once: " + done.stderr.decode())
    # Where nothing can be written that is said, and nothing else.
    b.env["XDG_STATE_HOME"] = "/proc/nowhere"
    done, _ = run()
    check(b"/proc/nowhere" in done.stderr, done.stderr.decode())
    b.env["XDG_STATE_HOME"] = str(b.folder / "state")


def case_routing(b):
    """What a run records is what `opt` judges, and says the same of the routing as the report."""
    if not (b.bin.parent / "lib" / "libggml-resid.so").exists():
        skip("libggml-resid.so is not built (no ggml-backend-impl.h beside the llama.cpp in use)")
    layers, tokens, used = 6, 48, 4
    trace = b.folder / "routing.csv"
    plain = b.plain(b.generate(PROMPTS[2], tokens))
    done, report = b.paged(["--ram", "50%", "--routing", str(trace)], b.generate(PROMPTS[2], tokens))
    check(done.returncode == 0 and done.stdout == plain.stdout, done.stderr.decode(errors="replace"))
    lines = trace.read_text().splitlines()
    check(lines[0] == "seq,pos,token_id,layer,e0,e1,e2,e3", lines[0])
    rows = [list(map(int, line.split(","))) for line in lines[1:]]
    check(len(rows) == layers * tokens, f"one row a layer and token that has an output: {len(rows)}")
    for i, row in enumerate(rows):
        check(row[1] == i // layers and row[3] == i % layers, f"row {i}: {row}")
        check(len(set(row[4:])) == used and all(0 <= e < 32 for e in row[4:]), f"row {i}: {row}")
    # Of tokens one by one the report asks for just these; a prompt asks for the distinct ones of all its tokens.
    asked = report["experts"]["asked"]
    check(layers * used * (tokens - 1) < asked <= layers * used * (tokens - 1) + layers * 32, f"asked {asked}")
    opt = subprocess.run([str(b.bin / "residctl"), "opt", str(trace), "--cap", "8", "--json"], capture_output=True, timeout=60)
    check(opt.returncode == 0, opt.stderr.decode(errors="replace"))
    rate = json.loads(opt.stdout)["hit_rate"]
    check(0 < rate["lru"] <= rate["opt"] < 1, f"hit rates: {rate}")
    # The same choices whatever the budget, and compressed where the name says so.
    packed = b.folder / "routing.csv.xz"
    done, _ = b.paged(["--ram", "25%", "--routing", str(packed)], b.generate(PROMPTS[2], tokens))
    check(done.returncode == 0, done.stderr.decode(errors="replace"))
    check(lzma.decompress(packed.read_bytes()).decode() == trace.read_text(), "the same routing at another budget")
    other = b.folder / "callback.csv"
    done, _ = b.paged(["--ram", "50%", "--experts-sensor", "eval_callback", "--routing", str(other)],
                      b.generate(PROMPTS[2], tokens))
    check(done.returncode == 0, done.stderr.decode(errors="replace"))
    check(other.read_text() == trace.read_text(), "the same routing by the scheduler's callback")
    # A warm-up asks for all experts, a piece of a prompt has no last layer: neither is in the trace.
    if b.llama and (b.llama / "llama-completion").exists():
        other = b.folder / "completion.csv"
        command = [b.program("llama-completion"), "-m", str(b.model), "-p", PROMPTS[2], "-n", "12", "-t", "1", "--temp", "0",
                   "-no-cnv", "-ub", "4"]
        done, _ = b.paged(["--ram", "50%", "--routing", str(other)], command)
        check(done.returncode == 0, done.stderr.decode(errors="replace"))
        rows = [list(map(int, line.split(","))) for line in other.read_text().splitlines()[1:]]
        check(len(rows) % layers == 0 and len(rows) >= layers * 11, f"whole tokens: {len(rows)} rows")
        check(all(len(row) == 4 + used for row in rows), "as many experts as the model uses")
    # A run that stands aside sees nothing, says so, and leaves no file.
    nothing = b.folder / "nothing.csv"
    done, _ = b.paged(["--ram", "100%", "--routing", str(nothing)], b.generate(PROMPTS[2], 4))
    check(done.returncode != 0 and b"no routing was seen" in done.stderr and not nothing.exists(), done.stderr.decode())
    unwritable = subprocess.run([str(b.bin / "residctl"), "run", "--routing", "/nonexistent/r.csv", "--", "true"],
                                capture_output=True, timeout=60)
    check(unwritable.returncode != 0 and b"/nonexistent/r.csv" in unwritable.stderr, unwritable.stderr.decode())
    left = [f for f in os.listdir(os.environ.get("XDG_RUNTIME_DIR") or "/tmp") if f.endswith(".routing")]
    check(not left, f"no spool stays behind: {left}")


def case_policies(b):
    plain = b.plain(b.generate(PROMPTS[0]))
    for policy in ("lru", "layer_order_learned", "layer_order_declared", "expert_lru", "expert_lfru"):
        for prefetch in ("off", "on") if not policy.startswith("expert_") else ("off",):
            done, report = b.paged(["--ram", "30%", "--policy", policy, "--prefetch", prefetch, "--lookahead", "off", "--history", "off", "--eager-reconcile"],
                                   b.generate(PROMPTS[0]))
            check(done.returncode == 0 and done.stdout == plain.stdout, f"{policy}, prefetch {prefetch}: the same text")
            check(report["policy"] == policy, "the report names the policy")
            check((report["prefetch"]["issued"] > 0) == (prefetch == "on" and policy != "lru"),
                  f"{policy}, prefetch {prefetch}: {report['prefetch']}")
            check_report(report, 30)


def case_switches(b):
    plain = b.plain(b.generate(PROMPTS[1]))
    for options in (["--sync-handler"], ["--fetch-workers", "1"], ["--chunk-max", "64KiB"], ["--chunk-max", "8MiB"],
                    ["--protect-current", "on"], ["--no-cgroup"], ["--prefetch", "on", "--prefetch-depth", "8",
                                                                  "--prefetch-admission", "always"],
                    ["--prefetch", "on", "--prefetch-retention", "none"]):
        if options == ["--protect-current", "on"]:
            options = ["--protect-current"]
        ram = "75%" if "8MiB" in options else "40%"
        done, report = b.paged(["--ram", ram, *options], b.generate(PROMPTS[1]))
        check(done.returncode == 0, f"{options}: " + done.stderr.decode(errors="replace"))
        check(done.stdout == plain.stdout, f"{options}: the same text")
        check_report(report)


def case_completion(b):
    command = [b.program("llama-completion"), "-m", str(b.model), "-p", PROMPTS[0], "-n", "40", "-t", "1", "--temp", "0",
               "-no-cnv", "--no-display-prompt", "-c", "256"]
    for ram in ("50%", "25%"):
        for attempt in range(3):
            plain = b.plain(command)
            done, report = b.paged(["--ram", ram], command)
            check(plain.returncode == 0 and done.returncode == 0, done.stderr.decode(errors="replace"))
            a, p = done.stdout.decode(), plain.stdout.decode()
            shorter, longer = sorted((a, p), key=len)
            check(len(shorter) > 40 and longer.startswith(shorter), f"{ram}: {a!r} against {p!r}")
            if a == p:
                break  # else one of them lost its tail, which is the program's own fault
        check(a == p, f"{ram}: the same text in one of three tries")
        check_report(report)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def post(port, prompt, n, results, index):
    body = json.dumps({"prompt": prompt, "n_predict": n, "temperature": 0, "return_tokens": True, "cache_prompt": False,
                       "id_slot": index}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/completion", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=200) as answer:
        results[index] = json.loads(answer.read())["tokens"]


def serve(b, prefix, prompts, n):
    port = free_port()
    command = prefix + [b.program("llama-server"), "-m", str(b.model), "--host", "127.0.0.1", "--port", str(port), "-t",
                        "1", "-np", "2", "-c", "512", "--no-warmup", "--no-webui"]
    log = open(b.folder / "server.log", "wb")
    server = subprocess.Popen(command, env=b.env, stdout=log, stderr=log)
    try:
        for _ in range(600):
            check(server.poll() is None, "the server runs: " + (b.folder / "server.log").read_text(errors="replace")[-2000:])
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2) as answer:
                    if answer.status == 200:
                        break
            except OSError:
                time.sleep(0.2)
        results = [None] * len(prompts)
        threads = [threading.Thread(target=post, args=(port, p, n, results, i)) for i, p in enumerate(prompts)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        return results
    finally:
        server.send_signal(signal.SIGINT)
        try:
            server.wait(60)
        except subprocess.TimeoutExpired:
            server.kill()
            check(False, "the server ends at SIGINT")


def case_server(b):
    """Two requests at a time, each with its own slot."""
    prompts = PROMPTS[:2]
    plain = serve(b, [], prompts, 32)
    report_file = b.folder / "server.json"
    paged = serve(b, [str(b.bin / "residctl"), "run", "--ram", "40%", "--report", str(report_file), "--"], prompts, 32)
    check(all(len(t) == 32 for t in plain + paged), "32 tokens each")
    check(paged == plain, f"the same token ids: {paged} against {plain}")
    check_report(json.loads(report_file.read_text()), 40)


def case_bench(b):
    command = [b.program("llama-bench"), "-m", str(b.model), "-p", "16", "-n", "8", "-r", "2", "-t", "1", "-o", "json"]
    done, report = b.paged(["--ram", "50%"], command)
    check(done.returncode == 0, done.stderr.decode(errors="replace"))
    rows = json.loads(done.stdout)
    check(len(rows) == 2 and all(r["avg_ts"] > 0 for r in rows), "two results")
    check_report(report, 50)


def case_split(b):
    """A model in several files under one budget."""
    parts = b.folder / "parts"
    parts.mkdir()
    split_gguf.split(b.model, parts, 3)
    first = parts / "model-00001-of-00003.gguf"
    plain = b.plain(b.generate(PROMPTS[0], 24, first))
    check(plain.returncode == 0, plain.stderr.decode(errors="replace"))
    whole = b.plain(b.generate(PROMPTS[0], 24))
    check(plain.stdout == whole.stdout, "the parts are the model")
    done, report = b.paged(["--ram", "50%"], b.generate(PROMPTS[0], 24, first))
    check(done.returncode == 0 and done.stdout == plain.stdout, "the same text: " + done.stderr.decode(errors="replace"))
    check(report["model"]["files_mapped"] == 3, "three files are under control")
    check(report["model"]["bytes"] == sum(p.stat().st_size for p in parts.glob("*.gguf")), "all parts count")
    check_report(report, 50)


def case_users(b):
    """An ordinary user, with no set-up at all: files that everybody may read, nothing else."""
    setpriv = shutil.which("setpriv")
    if os.geteuid() != 0 or setpriv is None:
        skip("needs root and setpriv to become another user")
    os.chmod(b.folder, 0o755)
    for name in ("bin", "lib", "llama", "out"):
        (b.folder / name).mkdir()
    os.chmod(b.folder / "out", 0o777)
    for name in ("residctl", "generate"):
        shutil.copy(b.program("generate") if name == "generate" else b.bin / name, b.folder / "bin")
    for library in (b.bin.parent / "lib").glob("libresid-preload.so"):
        shutil.copy(library, b.folder / "lib")
    for library in b.llama.glob("*.so*"):
        shutil.copy(library, b.folder / "llama")
    model = b.folder / "model.gguf"
    shutil.copy(b.model, model)
    os.chmod(model, 0o644)
    env = dict(b.env, HOME=str(b.folder / "out"), LD_LIBRARY_PATH=str(b.folder / "llama"))
    env.pop("XDG_RUNTIME_DIR", None)
    nobody = [setpriv, "--reuid=65534", "--regid=65534", "--clear-groups"]
    command = [str(b.folder / "bin/generate"), "--model", str(model), "--prompt", PROMPTS[0], "-n", "32", "-t", "1"]
    plain = subprocess.run(nobody + command, env=env, capture_output=True, timeout=100)
    check(plain.returncode == 0, plain.stderr.decode(errors="replace"))
    file = b.folder / "out/report.json"
    done = subprocess.run([*nobody, str(b.folder / "bin/residctl"), "run", "--ram", "50%", "--report", str(file), "--",
                           *command], env=env, capture_output=True, timeout=200)
    check(done.returncode == 0, done.stderr.decode(errors="replace"))
    check(done.stdout == plain.stdout, "the same text")
    report = json.loads(file.read_text())
    check_report(report, 50)
    print("route:", report["uffd_route"], "- swap:", report["swap_guarantee"])


def case_signals(b):
    """SIGTERM and SIGINT end the program and the report is written."""
    for number in (signal.SIGTERM, signal.SIGINT):
        report = b.folder / f"signal{number}.json"
        run = subprocess.Popen([str(b.bin / "residctl"), "run", "--ram", "30%", "--report", str(report), "--",
                                *b.generate(PROMPTS[0], 100000)], env=b.env, stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE)
        time.sleep(4)
        check(run.poll() is None, "still running: " + ("" if run.poll() is None else run.stderr.read().decode()))
        run.send_signal(number)
        code = run.wait(60)
        check(code == 128 + number, f"exit code {code}")
        check_report(json.loads(report.read_text()), 30)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--llama", default="")
    parser.add_argument("--model", required=True)
    parser.add_argument("case")
    args = parser.parse_args()
    bench = Bench(args)
    try:
        globals()["case_" + args.case](bench)
    finally:
        shutil.rmtree(bench.folder, ignore_errors=True)


main()
