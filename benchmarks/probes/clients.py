"""The clients of the benchmark `serving`, in a process of their own that imports only the standard library."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time

CLIENTS, K = 32, 20
SECONDS = 120  # limit for one round
WORDS = [f"{first}{last}" for first in ("ba", "de", "ki", "lo", "mu") for last in ("n", "r", "s", "t")]


async def client(port: int, texts: list[str], taken: list[float]) -> int:
    """Send one text after the other on one connection; returns the number of failed requests."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    errors = 0
    for text in texts:
        started = time.perf_counter()
        address = f"/search?text={text.replace(' ', '+')}&k={K}"
        writer.write(f"GET {address} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = re.search(rb"content-length: (\d+)", head)
        answer = json.loads(await reader.readexactly(int(length[1]) if length else 0))
        errors += not head.startswith(b"http/1.1 200 ") or len(answer["hits"]) != K
        taken.append(time.perf_counter() - started)
    writer.close()
    return errors


def main(port: int, first: int, each: int) -> None:
    """Run all clients concurrently, and print their errors and times as JSON."""

    async def all_clients() -> tuple[int, float]:
        started = time.perf_counter()
        parts = [texts(first + number * each, each) for number in range(CLIENTS)]
        errors = await asyncio.wait_for(asyncio.gather(*(client(port, part, taken) for part in parts)), SECONDS)
        return sum(errors), time.perf_counter() - started

    taken: list[float] = []
    errors, seconds = asyncio.run(all_clients())
    print(json.dumps({"errors": errors, "seconds": seconds, "taken": taken}))


def texts(first: int, count: int) -> list[str]:
    """Distinct texts of eight words."""
    made = []
    for number in range(first, first + count):
        digits = [number // 20**place % 20 for place in range(8)]
        made.append(" ".join(WORDS[digit] for digit in digits))
    return made


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]))
