"""A server of demos/serve that runs as a process, and the form of its errors."""

import re
import signal
import time

import httpx


class Served:
    """A server that runs, its address and what it printed first."""

    def __init__(self, process):
        self.process, self.lines = process, []
        for line in process.stdout:
            self.lines.append(line)
            if found := re.match(r"listening on (http://127\.0\.0\.1:\d+)\n", line):
                self.url = found[1]
                return
        raise AssertionError(process.stderr.read())

    def post(self, **body):
        return httpx.post(f"{self.url}/v1/completions", json=body, timeout=60)

    def metrics(self):
        text = httpx.get(f"{self.url}/metrics").text
        return {k: float(v) for k, v in re.findall(r"^serve_(\S+) (\S+)$", text, re.M)}

    def outcomes(self):
        names = ("stop", "length", "cancelled", "error", "refused", "invalid")
        found = self.metrics()
        return {name: found[f'requests_total{{outcome="{name}"}}'] for name in names}

    def settled(self):
        """The metrics once nothing waits or runs."""
        for _ in range(300):
            found = self.metrics()
            if found["queue_length"] == found["running"] == 0:
                return found
            time.sleep(0.05)
        raise AssertionError(f"not idle: {found}")

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)
        output, errors = self.process.communicate(timeout=60)
        return self.process.returncode, output, errors


def check_error(answer, status, message):
    """OpenAI's form, one sentence."""
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert {*error} == {"message", "type", "param", "code"}
    assert message in error["message"] and "\n" not in error["message"]
    assert len(error["message"]) < 200
    return error
