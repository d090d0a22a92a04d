"""corefan's worker for Python's event loops: the arms of a fan-out on asyncio and on uvloop.

Two processes, one interpreter lock each.  The parent holds the session with the coordinator (session, wire); the child
owns the measured event loop and sees no socket of ours (child, measure, arms, jobs, loops).  They exchange lines of
JSON over two pipes (loop_process).
"""

__version__ = "0.1.0"

PROTOCOL = (1, 0)
"""Version of the protocol: major, minor."""
