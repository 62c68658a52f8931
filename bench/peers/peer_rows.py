"""Rows of a peer as `kiln report --peers` reads them: one JSON object a line, under kiln's keys where they mean the same.

A row says what was measured (size or cell), by whom (`peer`, `peer_variant`, `peer_version`), how it ended (`status`), whether
its result was compared (`gate`), every sample, and on which machine under which load."""

import json
import os
import statistics
import subprocess
import sys
import time


def gpu_state():
    """What nvidia-smi says of the first GPU, and how many processes compute on it, this one included; empty where it cannot
    be asked."""
    fields = ("driver_version", "clocks.sm", "power.draw", "temperature.gpu", "utilization.gpu")
    ask = ["nvidia-smi", "--id=0", "--format=csv,noheader,nounits"]
    try:
        said = subprocess.run([*ask, "--query-gpu=" + ",".join(fields)], capture_output=True, text=True, timeout=20)
        pids = subprocess.run([*ask, "--query-compute-apps=pid"], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    values = [v.strip() for v in said.stdout.strip().split(",")]
    if said.returncode != 0 or len(values) != len(fields):
        return {}
    state = {"driver": values[0]}
    for name, value in zip(("sm_clock_mhz", "power_w", "temperature_c", "utilization_percent"), values[1:]):
        try:
            state[name] = float(value)
        except ValueError:  # "[N/A]"
            pass
    if pids.returncode == 0:
        state["processes"] = len(pids.stdout.split())
    return state


def host_of(torch):
    """The machine, before anything is measured."""
    host = {"device_name": torch.cuda.get_device_name(0), "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 2),
            "cuda": torch.version.cuda, "python": "%d.%d.%d" % sys.version_info[:3]}  # fmt: skip
    host.update(gpu_state())
    return host


def version_of(torch):
    """ "PyTorch 2.11.0, cuDNN 9.19.0" """
    text = "PyTorch " + torch.__version__.split("+")[0]
    cudnn = torch.backends.cudnn.version()
    return text + (", cuDNN %d.%d.%d" % (cudnn // 10000, cudnn // 100 % 100, cudnn % 100) if cudnn else "")


def timing_of(samples):
    """kiln's names for what follows from the samples, in ms."""
    ordered = sorted(samples)
    at = lambda share: ordered[min(len(ordered) - 1, int(share * len(ordered)))]
    return {"samples": len(samples), "p50_ms": statistics.median(samples), "mean_ms": statistics.fmean(samples),
            "std_ms": statistics.stdev(samples) if len(samples) > 1 else 0.0, "p20_ms": at(0.2), "p80_ms": at(0.8),
            "min_ms": ordered[0], "raw_samples": samples}  # fmt: skip


def row(command, what, peer, host, status="ok", gate="not-verified", **more):
    """`peer`: its name, variant and version. What is None is left out."""
    line = {"command": command, "peer": peer[0], "peer_variant": peer[1], "peer_version": peer[2], "device": "cuda:0",
            **what, "status": status, "gate": gate, **more, "host": host,
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}  # fmt: skip
    return {key: value for key, value in line.items() if value is not None}


def append(path, rows):
    with open(path, "a", encoding="utf-8") as file:
        file.write("".join(json.dumps(r) + "\n" for r in rows))
