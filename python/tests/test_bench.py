"""The programs of python/bench, as far as a busy machine can tell: that they end, and compare what they move."""

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import tcpx

BENCH = Path(__file__).parents[1] / "bench"


def load(name):
    spec = importlib.util.spec_from_file_location(name, BENCH / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("direction", ["in", "out"])
def test_peers(direction, tmp_path):
    report = tmp_path / "peers.json"
    small = ["--peers", "3", "--mib", "0.25", "--samples", "1", "--seconds", "0.5", "--direction", direction, "--json", report]
    run = subprocess.run([sys.executable, BENCH / "peers.py", *small], capture_output=True, text=True, timeout=200)
    assert run.returncode == 0, run.stderr
    rates = json.loads(report.read_text())["rates"]
    assert [len(rates[peers][0]) for peers in ("1", "3")] == [1, 3]
    assert "of one peer" in run.stdout


def test_peers_wants_a_place_for_slow_ones():
    run = subprocess.run([sys.executable, BENCH / "peers.py", "--slow", "1"], capture_output=True, text=True, timeout=60)
    assert run.returncode == 2 and "--netns" in run.stderr


def test_peers_sees_a_wrong_byte():
    peers = load("peers")
    with tcpx.Endpoint(listen="127.0.0.1") as endpoint:
        memory = peers.Memory(endpoint, 3, 4096)
        memory.fill(1)
        assert memory.is_right(1) and not memory.is_right(2)
        memory.places[1][7] ^= 1
        assert not memory.is_right(1)


def test_one_host(tmp_path):
    torch = pytest.importorskip("torch")
    report = tmp_path / "one_host.json"
    small = ["--gigabytes", "0.1", "--seconds", "0.02", "--json", report]
    run = subprocess.run([sys.executable, BENCH / "one_host.py", *small], capture_output=True, text=True, timeout=200)
    assert run.returncode == 0, run.stderr
    rows = json.loads(report.read_text())["rows"]
    assert {"first", "again", "new", "8 B", "64 MiB", "scattered"} < rows[0].keys()
    assert all(row["first/again"] == row["first"] / row["again"] for row in rows)
    assert "first/again" in run.stdout
    assert len(rows) == (4 if torch.cuda.is_available() else 1)


def test_one_host_knows_which_parts_were_written_last():
    pytest.importorskip("torch")
    one_host = load("one_host")
    nbytes = 4096 * one_host._RANGE
    whole, parts = (one_host.expected(nbytes, run, "cpu") for run in (1, 2))
    changed = (whole != parts).view(-1, one_host._RANGE).any(1)
    assert changed[:2048].all() and changed[2048::2].all() and not changed[2049::2].any()


@pytest.fixture(scope="module")
def network():
    """network_matrix, which finds the modules beside it."""
    sys.path.insert(0, str(BENCH))
    try:
        import network_matrix

        yield network_matrix
    finally:
        sys.path.remove(str(BENCH))


@pytest.mark.parametrize("peer", ["tcpx", "tcp"])
def test_network_ends_compare_what_they_move(network, peer, monkeypatch):
    monkeypatch.setenv("UCCL_TCPX_LOCAL", "off")
    import network_ends

    server, client = (network_ends.PEERS[peer](2) for _ in range(2))
    accepting = threading.Thread(target=server.accept, args=(1,))
    accepting.start()
    address = server.address() if peer == "tcpx" else ("127.0.0.1", server.address()[1])
    client.connect(address, 1)
    accepting.join()

    def fresh(nbytes):
        client.aim(server.allocate(3, nbytes))
        client.allocate(3, nbytes)

    for nbytes in (8, 200_000):  # over one socket, and over all
        fresh(nbytes)
        client.fill(5)
        assert server.wrong(5) == [0, 1, 2]
        assert len(client.write(60)) == 3 and server.wrong(5) == []
        server.places[1][7] ^= 1
        assert server.wrong(5) == [1] and server.wrong(5, 1) == []

        fresh(nbytes)
        server.fill(9)
        assert client.wrong(9) == [0, 1, 2]
        assert len(client.read(60)) == 3 and client.wrong(9) == []

        fresh(nbytes)
        for end in (server, client):
            end.post()
        answering = threading.Thread(target=server.answer, args=(3,))
        answering.start()
        assert len(client.there_and_back(20, 3)) == 3
        answering.join()
        assert server.wrong(20) == client.wrong(20) == []

    fresh(4096)
    client.fill(30)
    client.stream(0, 0.05)
    assert server.wrong(30, 2) == []
    client.close()


def test_a_network_end_broadcasts_every_place(network, tmp_path):
    import network_ends

    source, receiver = (network_ends.PEERS["tcpx"](2) for _ in range(2))
    for end in (source, receiver):
        end.allocate(2, 100_000)
    source.fill(5)
    times = []
    receiving = threading.Thread(target=lambda: times.append(receiver.weights_steps(str(tmp_path), 1, 0.0)))
    receiving.start()
    times.append(source.weights_steps(str(tmp_path), 0, 0.1))
    receiving.join()
    assert receiver.wrong(5) == [] and [len(some) for some in times] == [2, 2]


def test_network_content_says_where_it_belongs(network):
    import network_places

    seen = [network_places.content(4096, seed) for seed in range(50)]
    assert len({memory.tobytes() for memory in seen}) == 50
    assert all(not np.array_equal(seen[0][:512], seen[0][at : at + 512]) for at in range(1, 3584))


def test_a_wrong_byte_on_the_network_fails_the_run(network):
    class OneWrong:
        def call(self, name, *arguments):
            return [3] if name == "wrong" else None

    pair = network.Pair.__new__(network.Pair)
    pair.peer = "tcpx"
    with pytest.raises(network.Failed, match="stream, tcpx: wrong bytes in the places .3."):
        pair.expect(OneWrong(), "stream", 1)


def test_network_round_trips(network):
    setting = network.Setting(rtt_ms=10, mtu=1500)
    measurement = network.Measurement(setting, argparse.Namespace(mbit=1000))
    assert measurement.trips("connect", 0.025) == pytest.approx(2.5)
    # 1 MiB is 725 packets of 1448 bytes, each 1500 long
    assert measurement.trips("write 1048576 B", 0.01 + 1048576 / 1448 * 1500 * 8e-9) == pytest.approx(1.0)
    measurement.seen = {"connect": {"tcpx": 0.041}, "write 8 B": {"tcpx": 0.0119}, "stream": {"tcpx": 94.0, "tcp": 100.0}}
    assert [measurement.bar(what).endswith("MISSED") for what in measurement.seen] == [True, False, True]


def test_mooncakes_target_sees_a_wrong_byte_and_ranges_out_of_order(network):
    import network_mooncake

    ends = [network_mooncake.LocalEnd.__new__(network_mooncake.LocalEnd) for _ in range(2)]
    for end in ends:
        end.memory = network_mooncake.memories.allocate("DRAM", 0, 8 * 64)
    target, initiator = ends
    initiator.fill(3, 8 * 64)
    assert target.wrong(3, 8, 64) == 8
    there, here = (end.memory.data.reshape(8, 64) for end in ends)
    for i, j in zip(*network_mooncake.orders(8)):
        there[j] = here[i]
    assert target.wrong(3, 8, 64) == 0 and target.wrong(4, 8, 64) == 8
    there[5][7] ^= 1
    assert target.wrong(3, 8, 64) == 1
    there[:] = here
    assert target.wrong(3, 8, 64) >= 7


def test_mooncake_between_two_processes(network, tmp_path):
    import network_mooncake

    python = network_mooncake.MooncakeEnd.interpreter()
    if not python:
        pytest.skip(f"no Mooncake: {network_mooncake.MooncakeEnd.hint}")
    report = tmp_path / "mooncake.json"
    quick = ["--memory", "host", "--samples", "1", "--seconds", "0.01", "--json", report]
    run = subprocess.run([python, BENCH / "network_mooncake.py", *quick], capture_output=True, text=True, timeout=100)
    assert run.returncode == 0, run.stderr
    rows = json.loads(report.read_text())["tables"][0]["rows"]
    assert [row["name"] for row in rows] == list(network_mooncake.PATTERNS) and all(row["verified"] for row in rows)


@pytest.fixture
def without_others(network, monkeypatch):
    for peer in ("nixl-ucx", "mooncake"):
        monkeypatch.setattr(network.PEERS[peer], "interpreter", lambda: None)


@pytest.mark.parametrize("quick, wanted, chosen, left_out", [
    (False, None, ["tcpx", "tcp"], ["nixl-ucx", "mooncake"]),
    (True, None, ["tcpx", "tcp"], []),
    (False, "tcp", ["tcpx", "tcp"], []),
    (False, "nixl-ucx", None, "nixl-ucx is not here: scripts/install_deps.sh --nixl"),
    (False, "tcp,udp", None, "udp is none of tcpx, tcp, nixl-ucx, mooncake"),
])  # fmt: skip
def test_network_peers_that_are_here(network, without_others, capsys, quick, wanted, chosen, left_out):
    parser, given = argparse.ArgumentParser(), argparse.Namespace(quick=quick, peers=wanted)
    if chosen is None:
        with pytest.raises(SystemExit):
            network.chosen_peers(parser, given)
        assert left_out in capsys.readouterr().err
    else:
        assert network.chosen_peers(parser, given) == (chosen, left_out)


def test_a_network_peer_is_beside_ours(network):
    given = argparse.Namespace(mbit=1000, peers=["tcpx", "nixl-ucx"])
    measurement = network.Measurement(network.Setting(rtt_ms=10), given)
    measurement.seen = {
        "connect": {"tcpx": 0.02, "nixl-ucx": 0.05},
        "connect, 4 channels": {"tcpx": 0.02},
        "stream": {"tcpx": 90e6, "nixl-ucx": 60e6},
        "64 at once": {"tcpx": 0.02},
    }
    words = [line.split() for line in measurement.table().splitlines()]
    assert words[1][:6] == ["connect", "20.00", "2.0", "50.00", "5.0", "2.50"]
    assert "-" in words[2] and words[3][:6] == ["stream", "0.090", "GB/s", "0.060", "GB/s", "1.50"]
    assert measurement.summary("nixl-ucx")[-1] == "-"


def test_releases_are_ordered_by_number(network, tmp_path):
    import network_places

    assert network_places.newest_interpreter(tmp_path) is None
    for release in ("0.9.0", "0.10.1"):
        (tmp_path / release / "bin").mkdir(parents=True)
        (tmp_path / release / "bin/python3").touch()
    assert network_places.newest_interpreter(tmp_path) == str(tmp_path / "0.10.1/bin/python3")


def test_network_matrix_names_its_settings():
    run = subprocess.run([sys.executable, BENCH / "network_matrix.py", "--rtt", "7"], capture_output=True, text=True, timeout=60)
    assert run.returncode == 2 and "0.2, 1, 10, 50, 100 ms" in run.stderr


def test_stunnel(tmp_path):
    if not shutil.which("stunnel"):
        pytest.skip("no stunnel: Debian's package is stunnel4")
    report = tmp_path / "stunnel.json"
    quick = ["--places", "1", "--samples", "1", "--sockets", "2", "--json", report]
    run = subprocess.run([sys.executable, BENCH / "stunnel.py", *quick], capture_output=True, text=True, timeout=200)
    assert run.returncode == 0, run.stderr
    rates = json.loads(report.read_text())["rates"]
    assert list(rates) == ["encrypt", "stunnel", "stunnel and its end"] and all(len(samples[0]) == 3 for samples in rates.values())
    assert "all bytes compared" in run.stdout


def test_without_stunnel_nothing_is_measured():
    run = subprocess.run([sys.executable, BENCH / "stunnel.py"], env={**os.environ, "PATH": "/nowhere"}, capture_output=True, text=True,
                         timeout=60)  # fmt: skip
    assert (run.returncode, run.stdout) == (77, "") and "stunnel4" in run.stderr


def test_a_wrong_byte_behind_stunnel_fails_the_run(network):
    import stunnel

    class OneWrong:
        pid = os.getpid()

        def call(self, name, *arguments):
            return [3] if name == "wrong" and arguments == (7,) else None

    way = stunnel.Way.__new__(stunnel.Way)
    way.sender = way.receiver = OneWrong()
    way.stunnels, way.places, way.seed = [OneWrong()], 4, 3
    with pytest.raises(ValueError, match="wrong bytes in the places .3. behind stunnel"):
        way.sample()


def test_processor_time_beside_stunnel_is_that_of_both_processes(network):
    import stunnel

    before = time.process_time()
    assert before <= stunnel.processor_seconds(os.getpid()) <= time.process_time()
    # seconds; sender, receiver; their stunnels
    table = stunnel.rates(12_000_000_000, [[4.0, 2.0, 3.0]], [[6.0, 1.0, 2.0, 3.0, 4.0]])
    assert table == {"encrypt": [[3.0, 6.0, 4.0]], "stunnel": [[2.0, 4.0, 3.0]], "stunnel and its end": [[2.0, 3.0, 2.0]]}


def test_another_cipher_is_not_compared_with(network, tmp_path):
    import stunnel

    end = stunnel.Stunnel.__new__(stunnel.Stunnel)
    end.log = tmp_path / "log"
    end.log.write_text(2 * f"LOG6[0]: TLSv1.3 ciphersuite: {stunnel.CIPHER} (128-bit encryption)\n")
    assert end.encrypts(2) and not end.encrypts(3)
    end.log.write_text(end.log.read_text().replace("AES_128", "AES_256", 1))
    assert not end.encrypts(2)
