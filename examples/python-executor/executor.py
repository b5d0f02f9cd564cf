#!/usr/bin/env python3
"""An executor in one file: it runs the tools of one agent, with nothing but Python's standard library.

Copy it and put your tools into TOOLS, or import it, add to TOOLS and call main().

    HOST_URL=http://127.0.0.1:7070 TENANT_ID=tn_... EXECUTOR_TOKEN=... python3 executor.py
"""

import json
import os
import queue
import signal
import sys
import threading
import time
import uuid
from datetime import datetime, timezone
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

HOST_URL = os.environ.get("HOST_URL", "http://127.0.0.1:7070")
HEADERS = {
    "Authorization": "Bearer " + os.environ.get("EXECUTOR_TOKEN", ""),
    "Svc-Tenant": os.environ.get("TENANT_ID", ""),
    "Svc-Protocol": "8",
    "Content-Type": "application/json",
}

CLAIMS = 20  # actions at the same time
RETRY_S = 0.5
TRY_S = 30  # of one request
SILENCE_S = 60  # a stream says something every 15 s, if only that it is there
GRACE_S = 30  # for what runs when it is told to stop

# By name: what a tool does with its input. What it raises becomes a failed result, which the model reads.
TOOLS = {
    "add": lambda given: given["a"] + given["b"],
}

inbox = queue.SimpleQueue()  # "take", "stop", or why it cannot continue; a signal handler may put into this one
running = set()
stop_by = float("inf")


class Refused(Exception):
    """What the Host says to a request that makes no sense to repeat."""


def say(line):
    print(line, flush=True)


def is_away(status):
    return status == 429 or status >= 500


def text_of(error):
    with error:
        try:
            return error.read().decode(errors="replace")
        except (OSError, HTTPException):
            return ""


def call(path, body):
    """Sends the same request until there is an answer: everything that an executor sends is safe to repeat."""
    data = json.dumps(body).encode()
    while True:
        try:
            with urlopen(Request(HOST_URL + path, data, HEADERS, method="POST"), timeout=TRY_S) as answer:
                return json.load(answer)
        except HTTPError as error:
            text = text_of(error)
            if not is_away(error.code):
                raise Refused(f"{error.code} {text}") from None
        except (OSError, HTTPException, ValueError):
            pass  # the Host is away, or its answer was cut
        if time.monotonic() > stop_by:
            raise TimeoutError(f"{path} was not answered before the stop")
        time.sleep(RETRY_S)


def outcome_of(action):
    if action["kind"] == "hook":
        return {"kind": "completed", "output": {}}  # a hook that changes nothing
    name = action["toolName"]
    if name not in TOOLS:
        return {"kind": "failed", "code": "tool_missing", "message": f"No {name} here."}
    try:
        output = TOOLS[name](action["input"])
        json.dumps(output, allow_nan=False)  # raises for what is not JSON
        return {"kind": "completed", "output": output}
    except Exception as error:  # whatever a tool raises
        return {"kind": "failed", "code": "tool_failed", "message": (str(error) or repr(error))[:10_000]}


def third_of(lease_expires_at):
    left = datetime.fromisoformat(lease_expires_at.replace("Z", "+00:00")) - datetime.now(timezone.utc)
    return max(0.1, left.total_seconds() / 3)


def keep(path, held, every_s, is_over):
    """Three heartbeats in each lease, until the tool has ended or the claim is lost."""
    while not is_over.wait(every_s):
        try:
            every_s = third_of(call(path, {"requestId": str(uuid.uuid4()), **held})["leaseExpiresAt"])
        except (Refused, TimeoutError):
            return  # the claim is over: by its result, or it was lost and its result counts for nothing


def work(claim):
    action = claim["action"]
    action_id = action["actionId"]
    held = {"claimId": claim["claimId"], "generation": claim["generation"]}
    is_over = threading.Event()
    heartbeat = (f"/v1/actions/{action_id}/heartbeat", held, third_of(claim["leaseExpiresAt"]), is_over)
    threading.Thread(target=keep, args=heartbeat, daemon=True).start()
    try:
        outcome = outcome_of(action)
        result = {
            "type": "action_result",
            "requestId": str(uuid.uuid4()),
            # One key for each claim: however often this is sent, it counts once.
            "idempotencyKey": f"{action_id}.{claim['generation']}",
            "actionId": action_id,
            **held,
            "outcome": outcome,
        }
        call(f"/v1/sessions/{quote(action['sessionId'], safe='')}/commands", result)
        say(f"{action_id} {outcome['kind']}")
    except (Refused, TimeoutError) as error:
        say(f"{action_id} was not answered: {error}")
    finally:
        is_over.set()
        running.discard(threading.current_thread())
        inbox.put("take")


def take_all():
    """Takes what waits, as far as there is room; of several executors each action is got by one."""
    while len(running) < CLAIMS and stop_by == float("inf"):
        # Sent again after a cut, the same request gets the same claims: none is lost with an answer.
        body = {"requestId": str(uuid.uuid4()), "limit": CLAIMS - len(running)}
        claims = call("/v1/actions/claim", body)["claims"]
        if not claims:
            return
        for claim in claims:
            thread = threading.Thread(target=work, args=(claim,), daemon=True)
            running.add(thread)
            thread.start()


def listen():
    """Each `work_available` means: take it. A new stream says at once whether there is work, so nothing is missed."""
    while True:
        try:
            with urlopen(Request(HOST_URL + "/v1/executors/connect", headers=HEADERS), timeout=SILENCE_S) as stream:
                say("Connected.")
                for line in stream:
                    if line.startswith(b"event: work_available"):
                        inbox.put("take")
        except HTTPError as error:
            text = text_of(error)
            if not is_away(error.code):
                inbox.put(f"{error.code} {text}")
                return
        except (OSError, HTTPException):
            pass
        time.sleep(RETRY_S)


def stop(number, _frame):
    """Takes nothing more, and waits for what runs. The same signal once more ends it at once."""
    global stop_by
    stop_by = time.monotonic() + GRACE_S
    signal.signal(number, signal.SIG_DFL)
    inbox.put("stop")


def main():
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    threading.Thread(target=listen, daemon=True).start()
    try:
        while (message := inbox.get()) == "take":
            take_all()
    except (Refused, TimeoutError) as error:
        message = str(error)
    for thread in list(running):
        thread.join(max(0.0, min(GRACE_S, stop_by - time.monotonic())))
    if message != "stop":
        sys.exit(message)
    if running:
        sys.exit(f"{len(running)} actions were not done in time; the Host decides what becomes of them")
    say("Stopped.")


if __name__ == "__main__":
    main()
