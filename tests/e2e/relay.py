"""relay.py LISTEN_PORT TO_HOST TO_PORT: a TCP relay on loopback that can be told, line by line on stdin, to misbehave.

delay MS   every piece of data waits for so long, in both directions, from now on (0: none)
stall MS   nothing is passed on for so long
cut        every connection that is open is reset
Ends with its stdin.
"""
import asyncio
import socket
import struct
import sys


class Relay:
    def __init__(self, to_host, to_port):
        self.to = (to_host, to_port)
        self.delay_s = 0.0
        self.stalled_until = 0.0
        self.writers = set()

    async def accept(self, reader, writer):
        try:
            far_reader, far_writer = await asyncio.open_connection(*self.to)
        except OSError:
            writer.close()
            return
        self.writers |= {writer, far_writer}
        await asyncio.gather(self.pump(reader, far_writer), self.pump(far_reader, writer))
        self.writers -= {writer, far_writer}

    async def pump(self, reader, writer):
        loop = asyncio.get_running_loop()
        try:
            while data := await reader.read(65536):
                await asyncio.sleep(max(self.delay_s, self.stalled_until - loop.time()))
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        writer.close()

    def cut(self, _):
        for writer in self.writers:
            end = writer.get_extra_info("socket")
            if end is not None and end.fileno() >= 0:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

    def delay(self, ms):
        self.delay_s = ms / 1000

    def stall(self, ms):
        self.stalled_until = asyncio.get_running_loop().time() + ms / 1000


async def main():
    relay = Relay(sys.argv[2], int(sys.argv[3]))
    await asyncio.start_server(relay.accept, "127.0.0.1", int(sys.argv[1]))
    orders = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    words = {"delay": relay.delay, "stall": relay.stall, "cut": relay.cut}
    while line := await orders.readline():
        word, _, ms = line.decode().strip().partition(" ")
        words[word](int(ms or 0))


if __name__ == "__main__":
    asyncio.run(main())
