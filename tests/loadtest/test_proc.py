"""What the kernel says of processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from loadtest.proc import cpu_s, family_cpu_s, rss_bytes, tree
from tests.patience import poll

pytestmark = pytest.mark.endtoend

PARENT_OF_A_PARENT = "import subprocess, sys; print(1, flush=True); subprocess.run([sys.executable, '-c', 'input()'])"


def test_a_tree_has_all_descendants_and_no_dead_ones() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT_OF_A_PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as one:
        assert one.stdout is not None
        one.stdout.readline()
        poll("a child", lambda: len(tree(one.pid)), (2).__eq__)
        assert tree(one.pid)[0] == one.pid
        assert set(tree(one.pid)) < set(tree(os.getpid()))
    assert tree(one.pid) == []


def test_a_process_that_ended_is_in_no_tree_before_its_parent_asks_for_its_end() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as one:
        assert tree(one.pid) == [one.pid]
        one.kill()
        os.waitid(os.P_PID, one.pid, os.WEXITED | os.WNOWAIT)
        assert tree(one.pid) == []
        assert one.pid not in tree(os.getpid())


def test_work_costs_processor_time() -> None:
    own = [os.getpid()]
    before = cpu_s(own)
    while cpu_s(own) - before < 0.02:
        sum(range(1000))
    assert cpu_s(own) == pytest.approx(time.process_time(), abs=0.1)


def test_memory_that_is_touched_is_resident() -> None:
    before = rss_bytes([os.getpid()])
    held = b"x" * (32 << 20)
    assert rss_bytes([os.getpid()]) - before > len(held) * 0.9


def test_a_process_that_is_gone_counts_nothing() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as one:
        one.wait()
    assert (cpu_s([one.pid]), rss_bytes([one.pid])) == (0, 0)


def test_a_family_has_the_work_of_children_that_have_ended() -> None:
    own = [os.getpid()]
    alone, family = cpu_s(own), family_cpu_s(own)
    subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.3: pass"], check=True)
    assert family_cpu_s(own) - family >= cpu_s(own) - alone + 0.3 - 0.02
