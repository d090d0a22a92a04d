"""A coroutine of one's own as the child of a fan-out: called with the child's index, its value is the child's result."""
import asyncio
import json


async def fetch_cart(index):
    """A look-up that waits for 4 ms and then decodes an answer."""
    await asyncio.sleep(0.004)
    return json.loads('{"cart": [1, 2, 3]}')["cart"][index % 3]


async def fetch_flaky_cart(index):
    """Every tenth child fails: an outcome of that child, not of the run."""
    if index % 10 == 9:
        raise LookupError(f"cart {index} is gone")
    return await fetch_cart(index)
