#!/usr/bin/env python3
"""Searches with measurements made up here, first without run_nccl.sh, then with it, where scripts stand in for the programs that it calls.

Exit code: 0 as expected, 1 not."""

import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE))
import search  # noqa: E402

failures = 0


def expect(right, what):
    global failures
    if not right:
        failures += 1
        print(f"FAILED: {what}")


class Machine:
    """Where one setting is best at 64 MiB and another for 8 B, and each measurement takes ten seconds."""

    BEST = {"large": search.Setting(chunk=2 << 20, sockets=1, channels=16, threads=4, task=64 << 10, low_latency=0),
            "small": search.Setting(chunk=64 << 10, sockets=1, channels=1, threads=0, task=64 << 10, low_latency=1)}

    def __init__(self, fails=lambda setting: False, plugin_fails=False):
        self.clock, self.asked, self.said = 0, [], []
        self.fails, self.plugin_fails = fails, plugin_fails
        self.known = {}

    def distance(self, setting, best):
        return sum(abs(math.log2((getattr(setting, name) or 0.5) / (getattr(best, name) or 0.5))) for name in search.COORDINATES)

    def measure(self, kind, name, variables):
        self.clock += 10
        self.asked.append((kind, name))
        if kind == "plugin":
            return None if self.plugin_fails else self.result(25, 20)
        values = dict(text.split("=") for text in variables)
        setting = search.Setting(*(int(values[name]) for name in (
            "NCCL_P2P_NET_CHUNKSIZE", "NCCL_NSOCKS_PERTHREAD", "NCCL_NCHANNELS_PER_NET_PEER", "NCCL_SOCKET_NTHREADS",
            "NCCL_SOCKET_MIN_TASKSIZE", "NCCL_ALLOC_P2P_NET_LL_BUFFERS")))
        expect(values["NCCL_MIN_P2P_NCHANNELS"] == values["NCCL_NCHANNELS_PER_NET_PEER"], "channels")
        expect(int(values.get("NCCL_BUFFSIZE", 4 << 20)) >= 8 * setting.chunk, f"a buffer holds eight chunks: {name}")
        expect(search.name_of(setting) == name, f"{name} is what it is called")
        expect(setting.threads * setting.sockets <= 64, f"{name} has too many sockets")
        if self.fails(setting):
            return None
        return self.result(50 / (1 + self.distance(setting, self.BEST["large"])), 10 * (1 + self.distance(setting, self.BEST["small"])))

    @staticmethod
    def result(rate, time):
        return {"gbps": {"67108864": [rate / 2, rate, rate * 2]}, "core_seconds_per_gb": {"67108864": 0.5},
                "half_round_trip_us": {"8": [time / 2, time, time * 2]}, "verified": True}

    def search(self, seconds):
        return search.search(self.measure, seconds, self.said.append, lambda: self.clock)


def the_strategy():
    machine = Machine()
    results, ends, plugin = machine.search(1e9)
    expect(search.winners(results) == {("GB/s", 64 << 20): Machine.BEST["large"], ("us", 8): Machine.BEST["small"]}, "both best are found")
    expect(len(results) < 150, f"not everything is tried: {len(results)}")
    expect(len(set(machine.asked)) == len(machine.asked) - 2, "nothing is tried twice but the two best")
    expect(set(ends) == set(Machine.BEST.values()), "the best are measured again")
    lines = search.table(results, ends, plugin)
    expect(any("64M GB/s" in line and "x0.50" in line and line.endswith("2M-4x1-16ch") for line in lines), f"64 MiB in {lines}")
    expect(any("8B us" in line and "x2.00" in line and line.endswith("64K-0x1-1ch-LL") for line in lines), f"8 B in {lines}")

    lines = search.table(results, dict.fromkeys(ends), plugin)
    expect(sum("figure of the search" in line for line in lines) == 2, f"what failed at the end is said in {lines}")

    for seconds in (1, 100, 300):
        machine = Machine()
        results, ends, plugin = machine.search(seconds)
        expect(machine.clock <= max(seconds, 40) and len(results) >= 1 and ends and len(plugin) == 2, f"{seconds} s took {machine.clock} s")

    machine = Machine(fails=lambda setting: setting.channels == 32 or setting.low_latency)
    results, _, _ = machine.search(1e9)
    expect(search.winners(results)["GB/s", 64 << 20] == Machine.BEST["large"], "found where some settings fail")
    machine = Machine(fails=lambda setting: True)
    results, ends, plugin = machine.search(1e9)
    expect(len(results) == len(search.STARTS) and not search.winners(results) and not ends, "it ends where every setting fails")
    results, ends, plugin = Machine(plugin_fails=True).search(200)
    expect(any("failed" in line for line in search.table(results, ends, plugin)), "the table says that the plugin failed")


STAND_INS = {
    "nvidia-smi": 'for ((i = 0; i < GPUS; ++i)); do echo "GPU $i"; done',
    "nvidia-cuda-mps-control": '[[ ${1-} == -d ]] && exec touch "$CUDA_MPS_PIPE_DIRECTORY/runs"\n'
                               'read -r line; echo "$line" >>"$DIRECTORY/mps"; [[ $line != get_server_list ]] || echo "${SERVER-1}"',
    # Jobs with 16 channels fail at rank 1, for which rank 0 would wait longer than this test takes.
    "python3": '[[ $1 == -c ]] && exit\n[[ $1 == *bandwidth.py ]] || exec "$PYTHON" "$@"\n'
               'echo "$RANK ${NCCL_HOSTID-none} ${*:2} ${NCCL_NET-plugin} ${NCCL_NET_GDR_LEVEL-}" >>"$DIRECTORY/jobs"\n'
               '[[ $NCCL_MIN_P2P_NCHANNELS != 16 ]] || { ((RANK == 1)) || exec sleep 60; echo "a reason"; exit 1; }\n'
               '[[ $RANK == 0 ]] || echo "$RESULT"',
}


def the_script(gpus, *options, **variables):
    """Runs run_nccl.sh search; what it said, its exit code, the jobs that it ran, what it told MPS, and the lines of the file."""
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        for program, text in STAND_INS.items():
            (directory / program).write_text("#!/usr/bin/env bash\n" + text + "\n")
            (directory / program).chmod(0o755)
        environment = dict(os.environ, PATH=f"{name}:{os.environ['PATH']}", DIRECTORY=name, GPUS=str(gpus), PYTHON=sys.executable,
                           RESULT=json.dumps(Machine.result(12, 30)), **variables)
        run = subprocess.run([HERE / "run_nccl.sh", "search", "--plugin", directory / "python3", "--json", directory / "json", *options],
                             env=environment, text=True, capture_output=True, timeout=50)
        read = lambda file: (directory / file).read_text().splitlines() if (directory / file).exists() else []  # noqa: E731
        return run.stdout + run.stderr, run.returncode, read("jobs"), read("mps"), [json.loads(line) for line in read("json")]


def in_the_script():
    said, code, jobs, mps, lines = the_script(2)
    expect(code == 0 and "run_nccl: passed" in said and "64M GB/s" in said and "x1.00" in said, f"two GPUs: {code}, {said}")
    expect(not mps and all(" none  " in job for job in jobs), f"two GPUs need no MPS: {mps}, {jobs[:2]}")
    expect("FAILED: 512K-2x2-16ch, rank 1" in said and "| a reason" in said, f"failures are said: {said}")
    expect(any(line["result"] is None for line in lines) and sum(line["result"] is not None for line in lines) > 4, "the file has all results")
    plugin = {job for job in jobs if "plugin" in job}
    expect(plugin == {f"{rank} none  plugin {level}" for rank in (0, 1) for level in ("SYS", "")}, f"the plugin, GDR on and off: {plugin}")

    said, code, jobs, mps, _ = the_script(1, "--seconds", "0")
    expect(code == 0 and len(jobs) == 8, f"one GPU, no time: {code}, {jobs}, {said}")
    expect(all(job.startswith(f"{job[0]} rank-{job[0]} --gpus 0,0 ") for job in jobs), f"the ranks are of two hosts: {jobs}")
    expect(mps == ["get_server_list", "quit -t 5"], f"MPS runs as long as the script: {mps}")
    said, code, jobs, mps, _ = the_script(1, "--seconds", "0", SERVER="")
    expect(code == 77 and not jobs and mps[-1:] == ["quit -t 5"] and "do not use MPS" in said, f"without a server: {code}, {said}")
    _, code, jobs, _, _ = the_script(2, "--gpus", "1", "--seconds", "0")
    expect(code == 0 and "--gpus 0,0" in jobs[0], f"one of two GPUs: {code}, {jobs}")
    said, code, _, _, _ = the_script(0)
    expect(code == 77 and "there are 0" in said, f"no GPU: {code}, {said}")
    expect(the_script(2, "--seconds")[1] == 2, "an option without its value")


the_strategy()
in_the_script()
sys.exit(failures > 0)
