"""A link to a server that breaks: what it passes on has its effect, and some answers never arrive."""

import contextlib
import socket
import threading
import time
from urllib.parse import urlsplit


class BrokenLink:
    """Forwards one request a connection to a server. The answers to the next `losses` requests of `method` are lost."""

    def __init__(self, endpoint: str) -> None:
        self._server = (urlsplit(endpoint).hostname, urlsplit(endpoint).port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.losses = 0
        self.method = ""
        self.instead = b""
        """What is answered, without asking the server, to the next request."""
        self.always = b""
        """The same, to all requests."""
        self.cuts = 0
        """So many of the next answers end in their middle."""
        self.pause_seconds = 0.0
        """How long an answer pauses in its middle."""
        self.requests: list[str] = []
        """The first lines of the requests."""
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            request = self._message(client)
            if not request:
                return
            self.requests.append(request.split(b"\r\n", 1)[0].decode())
            if self.instead or self.always:
                answer, self.instead = self.instead or self.always, b""
                head, end, body = answer.partition(b"\r\n\r\n")
                client.sendall(head + end + (b"" if request.startswith(b"HEAD") else body))
                return
            with socket.create_connection(self._server) as server:
                server.sendall(request.replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
                answer = b""
                while piece := server.recv(1 << 16):
                    answer += piece
            if self.losses and request.startswith(self.method.encode()):
                self.losses -= 1
            else:
                self._answer(client, answer.replace(b"\r\n", b"\r\nConnection: close\r\n", 1))

    def _answer(self, client: socket.socket, answer: bytes) -> None:
        """Send the head of an answer and half of its body, then the rest, unless it is cut."""
        middle = (answer.index(b"\r\n\r\n") + 4 + len(answer)) // 2
        is_cut, pause_seconds = self.cuts > 0, self.pause_seconds  # before the client goes on, and changes them
        self.cuts -= is_cut
        client.sendall(answer[:middle])
        if is_cut:
            return
        time.sleep(pause_seconds)
        client.sendall(answer[middle:])

    @staticmethod
    def _message(client: socket.socket) -> bytes:
        """Return the whole request: its head, and the body of the length that the head says."""
        data = b""
        while b"\r\n\r\n" not in data:
            piece = client.recv(1 << 16)
            if not piece:
                return data
            data += piece
        head, _, body = data.partition(b"\r\n\r\n")
        lines = [line.partition(b":") for line in head.lower().split(b"\r\n")]
        length = next((int(value) for name, _, value in lines if name == b"content-length"), 0)
        if b"100-continue" in head.lower():
            client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            head = b"\r\n".join(line for line in head.split(b"\r\n") if not line.lower().startswith(b"expect:"))
        while len(body) < length:
            body += client.recv(1 << 16)
        return head + b"\r\n\r\n" + body
