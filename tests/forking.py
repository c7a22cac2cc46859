# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs tests in forks of the process that collected them: ``python -m pytest -p tests.forking --forks 3``.

A worker runs one file after the other and computes once what a file caches. When no file is left, it takes half of the tests that
another worker still has. The tests of a file that has fixtures of a wider scope stay together. Each worker has its own temporary folder
and runs ``pytest_sessionfinish`` at its end. A test in which a worker dies is a failed test. One that takes :data:`MOST_SECONDS` of the
processor kills its worker, which prints where it is.
"""

import collections
import contextlib
import faulthandler
import gc
import itertools
import multiprocessing
import multiprocessing.connection
import os
import pickle
import signal
import sys
import time
import traceback
import warnings

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key

GRACE = 20
"""Seconds that all workers together get to end after an interrupt."""
MOST_SECONDS = 180
"""CPU seconds that a test may take, without those of programs that it starts."""


def pytest_addoption(parser):
    parser.addoption("--forks", type=int, default=0, metavar="N", help="run the tests in N forks of this process")


def pytest_configure(config):
    if config.option.forks and not config.option.collectonly:
        config.pluginmanager.register(Forks(config.option.forks), "forks")


class Worker:
    """A fork of this process. ``kept`` and ``running`` are the tests that it still has, as places in ``session.items``."""

    def __init__(self, number, kept):
        self.number = number
        self.kept = collections.deque(kept)
        self.running = collections.deque()
        self.connection, self.its_connection = multiprocessing.Pipe()
        self.pid = 0


class Forks:
    """The plugin that forks workers, hands out tests and passes on what the workers report."""

    def __init__(self, count):
        self.count = count
        self.numbers = itertools.count(1)
        self.workers = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session):
        if session.testsfailed:
            return None  # errors of collection, which pytest reports
        self.session = session
        self.files = collections.deque(by_file(session.items))
        self.temporary = session.config._tmp_path_factory.getbasetemp()
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.showfspath = False
        gc.collect()
        gc.freeze()
        try:
            for _each in range(min(self.count, len(session.items))):
                self.start()
            while self.workers:
                ready = multiprocessing.connection.wait([worker.connection for worker in self.workers])
                for worker in [worker for worker in self.workers if worker.connection in ready]:
                    self.receive(worker)
        finally:
            gc.unfreeze()
            self.interrupt()
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        return True

    @property
    def ending(self):
        return self.session.shouldfail or self.session.shouldstop

    def start(self, kept=()):
        worker = Worker(next(self.numbers), kept)
        self.workers.append(worker)
        sys.stdout.flush()
        sys.stderr.flush()
        worker.pid = os.fork()
        if not worker.pid:
            for other in self.workers:
                other.connection.close()
            Work(self.session, worker.its_connection).be(self.temporary / ("worker-%d" % worker.number))
        worker.its_connection.close()
        self.give(worker)

    def give(self, worker):
        """Send a worker its next tests; none are its end."""
        if self.ending:
            worker.kept.clear()
        elif not worker.kept and self.files:
            worker.kept.extend(self.files.popleft())
        elif not worker.kept:
            richest = max(self.workers, key=lambda other: len(other.kept))
            worker.kept.extend(richest.kept.pop() for _each in range((len(richest.kept) + 1) // 2))
        worker.running = collections.deque(worker.kept.popleft() if worker.kept else ())
        with contextlib.suppress(BrokenPipeError):  # it is dead, which is found where it should report
            worker.connection.send(list(worker.running))

    def receive(self, worker):
        """Pass on what a worker reports after a test, and keep all workers busy."""
        message = None
        with contextlib.suppress(EOFError, ConnectionResetError):
            message = worker.connection.recv()
        if message is None:
            self.bury(worker)
            return
        events, shouldstop, error = message
        for event in events:
            self.pass_on(*event)
        if error:
            raise RuntimeError("in worker %d: %s" % (worker.number, error))
        self.session.shouldstop = self.session.shouldstop or shouldstop
        if worker.running:
            worker.running.popleft()
            if not worker.running:
                self.give(worker)
        if self.ending:
            for busy in [other for other in self.workers if other.running]:
                self.give(busy)

    def pass_on(self, kind, values):
        hook = self.session.config.hook
        if kind == "report":
            report = hook.pytest_report_from_serializable(config=self.session.config, data=values)
            hook.pytest_runtest_logreport(report=report)
        else:
            hook.pytest_warning_recorded.call_historic(kwargs=values)

    def bury(self, worker):
        """Report how a worker ended, if not by itself, and let another one run what it left."""
        self.workers.remove(worker)
        worker.connection.close()
        status = os.waitpid(worker.pid, 0)[1]
        if not status:
            return
        how = "signal %d" % os.WTERMSIG(status) if os.WIFSIGNALED(status) else "status %d" % os.WEXITSTATUS(status)
        if not worker.running:
            raise RuntimeError("worker %d ended with %s at the end of its session" % (worker.number, how))
        item = self.session.items[worker.running.popleft()]
        words = "worker %d ended with %s in %s" % (worker.number, how, item.nodeid)
        self.session.config.hook.pytest_runtest_logreport(report=pytest.TestReport(item.nodeid, item.location, {}, "failed", words, "call"))
        if not self.ending:
            self.start([list(worker.running)] * bool(worker.running) + list(worker.kept))

    def interrupt(self):
        """End the workers that are left because this process was interrupted or failed."""
        handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
        for worker in self.workers:
            os.kill(worker.pid, signal.SIGINT)
        deadline = time.monotonic() + GRACE
        for worker in self.workers:
            with contextlib.suppress(EOFError, ConnectionResetError):  # it has ended
                while worker.connection.poll(max(0, deadline - time.monotonic())):
                    worker.connection.recv()
                os.kill(worker.pid, signal.SIGKILL)
            os.waitpid(worker.pid, 0)
        self.workers.clear()
        signal.signal(signal.SIGINT, handler)


def by_file(items):
    """Return the tests of each file, as lists of places in ``items`` that one worker runs in a row: one, or all if they share a fixture."""
    files = []
    for _path, group in itertools.groupby(enumerate(items), key=lambda pair: pair[1].nodeid.partition("::")[0]):
        pairs = list(group)
        places = [place for place, _item in pairs]
        files.append([places] if any(shares(item) for _place, item in pairs) else [[place] for place in places])
    return files


def shares(item):
    """Return whether a test has a fixture that lives longer than the test and not as long as the session."""
    fixtures = getattr(item, "_fixtureinfo", None)
    definitions = fixtures.name2fixturedefs.values() if fixtures else ()
    return any(definition[-1].scope not in ("function", "session") for definition in definitions)


class Work:
    """The plugin of a worker, which replaces the terminal's."""

    def __init__(self, session, connection):
        self.session = session
        self.connection = connection
        self.events = []

    def pytest_runtest_logreport(self, report):
        data = self.session.config.hook.pytest_report_to_serializable(config=self.session.config, report=report)
        self.events.append(("report", data))

    def pytest_warning_recorded(self, warning_message, when, nodeid, location):
        category = warning_message.category
        try:
            pickle.dumps(category)
        except Exception:  # a class in a function
            category = UserWarning
        warning = warnings.WarningMessage(str(warning_message.message), category, warning_message.filename, warning_message.lineno)
        self.events.append(("warning", {"warning_message": warning, "when": when, "nodeid": nodeid, "location": location}))

    def be(self, temporary):
        """Be a worker until there are no more tests, and end the process."""
        status = 1
        try:
            signal.signal(signal.SIGINT, interrupted_once)
            self.prepare(temporary)
            try:
                self.run_tests()
            finally:
                exitstatus = pytest.ExitCode.TESTS_FAILED if self.session.testsfailed else pytest.ExitCode.OK
                self.session.config.hook.pytest_sessionfinish(session=self.session, exitstatus=exitstatus)
            self.send()
            status = 0
        except (KeyboardInterrupt, BrokenPipeError):
            status = 130
        except BaseException:
            self.send(error=traceback.format_exc())
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def prepare(self, temporary):
        config = self.session.config
        config.pluginmanager.unregister(name="terminalreporter")
        config.pluginmanager.register(self, "work")
        self.events.clear()  # warnings that the parent has shown
        config.option.basetemp = temporary
        config._tmp_path_factory = type(config._tmp_path_factory).from_config(config, _ispytest=True)
        capture = config.pluginmanager.get_plugin("capturemanager")
        if capture is not None:  # its files are the parent's
            capture.stop_global_capturing()
            capture.start_global_capturing()
            capture.suspend_global_capture()
        faulthandler.register(signal.SIGPROF, config.stash.get(fault_handler_stderr_fd_key, sys.__stderr__), chain=True)

    def run_tests(self):
        items = self.session.items
        places = self.connection.recv()
        while places:
            for place, following in itertools.zip_longest(places, places[1:]):
                item = items[place]
                nextitem = self.session if following is None else items[following]  # the fixtures of the session stay
                stop = ""
                signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)
                try:
                    item.config.hook.pytest_runtest_protocol(item=item, nextitem=nextitem)
                except pytest.exit.Exception as error:
                    stop = str(error)
                self.send(stop or self.session.shouldstop)
                if following is not None and self.connection.poll():
                    break
            places = self.connection.recv()

    def send(self, shouldstop="", error=""):
        self.connection.send((self.events, shouldstop, error))
        self.events = []


def interrupted_once(_signal, _frame):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt
