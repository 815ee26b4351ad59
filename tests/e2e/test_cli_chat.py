"""`churon run MODEL` on a terminal: a chat, driven through a pseudo-terminal."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import termios
import time

import pytest


class Terminal:
    """A program on a pseudo-terminal of 100 columns."""

    def __init__(self, *command, columns=100, rows=30, term="xterm"):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update(TERM=term, NO_COLOR="1")
            os.execv(command[0], command)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.seen = ""
        self.at = 0  # what was expected is behind this

    def read(self, wait):
        if select.select([self.fd], [], [], wait)[0]:
            try:
                data = os.read(self.fd, 65536)
            except OSError:
                return False
            self.seen += data.decode("utf-8", "replace")
            return bool(data)
        return None

    def expect(self, pattern, timeout=60):
        end = time.monotonic() + timeout
        while True:
            found = re.compile(pattern).search(self.seen, self.at)
            if found:
                self.at = found.end()
                return found
            left = end - time.monotonic()
            assert left > 0, f"expected {pattern!r}, got {self.seen[self.at:]!r}"
            assert self.read(min(left, 1)) is not False, f"expected {pattern!r}, it ended with {self.seen[self.at:]!r}"

    def send(self, text):
        os.write(self.fd, text.encode() if isinstance(text, str) else text)

    def prompt(self):
        """Waits until a message can be typed: the terminal is in raw mode and asks for pastes."""
        self.expect(re.escape("\x1b[?2004h"))
        self.expect("> ")

    def say(self, text):
        self.send(text + "\r")
        self.expect(re.escape("\x1b[?2004l"))

    def leave(self):
        while self.read(0.2):
            pass
        end = time.monotonic() + 20
        while time.monotonic() < end:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.pid = None
                return os.waitstatus_to_exitcode(status)
            self.read(0.1)
        raise AssertionError("it did not end")

    def close(self):
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)


@pytest.fixture
def chat(churon, smollm2):
    terminals = []

    def begin(*options, **size):
        t = Terminal(churon, "run", smollm2, "--temperature", "0", "--max-tokens", "24", *options, **size)
        terminals.append(t)
        t.expect("/help")
        t.prompt()
        return t

    yield begin
    for t in terminals:
        t.close()


def saved(t, path):
    t.say(f"/save {path}")
    t.expect(r"messages saved in")
    t.prompt()
    return json.loads(path.read_text())["messages"]


def test_two_turns(chat, tmp_path):
    t = chat()
    cooked = termios.tcgetattr(t.fd)
    t.say("My name is Anna. Say hello.")
    t.prompt()
    t.say("/speed")
    first = int(t.expect(r"\(prompt (\d+) tokens").group(1))
    t.prompt()
    t.say("What is my name?")
    t.prompt()
    t.say("/speed")
    second = int(t.expect(r"\(prompt (\d+) tokens").group(1))
    t.prompt()
    assert second < first + 24, "a turn computes only what is new"
    messages = saved(t, tmp_path / "chat.json")
    assert [m["role"] for m in messages] == ["user", "assistant"] * 2
    assert all(m["content"] for m in messages)
    t.say("/exit")
    assert t.leave() == 0
    assert cooked[3] & termios.ICANON == 0 and termios.tcgetattr(t.fd)[3] & termios.ICANON, "the mode was restored"


def test_a_turn_is_what_one_run_would_say(chat, churon, smollm2, tmp_path):
    import subprocess
    t = chat("--system", "You are brief.")
    t.say("Name a colour.")
    t.prompt()
    messages = saved(t, tmp_path / "chat.json")
    done = subprocess.run([churon, "run", smollm2, "Name a colour.", "--system", "You are brief.", "--temperature", "0",
                           "--max-tokens", "24", "--json"], capture_output=True, check=True)
    assert messages == [{"role": "system", "content": "You are brief."}, {"role": "user", "content": "Name a colour."},
                        {"role": "assistant", "content": json.loads(done.stdout)["text"]}]


def test_interrupt_keeps_the_chat(chat, tmp_path):
    t = chat("--ignore-eos")
    t.say("/set max-tokens 4000")
    t.prompt()
    t.say("Write a very long story about the sea.")
    t.expect(r"\w+ \w+ \w+")
    time.sleep(0.5)
    t.send("\x03")
    t.expect(r"\(stopped\)", timeout=10)
    t.prompt()
    messages = saved(t, tmp_path / "chat.json")
    assert [m["role"] for m in messages] == ["user", "assistant"] and messages[1]["content"]
    t.send("some text\x03")  # empties the line
    t.expect("some text")
    t.say("/set max-tokens 5")
    t.expect(r"max-tokens = 5")
    t.prompt()
    t.say("And now?")
    t.expect(r"\(ended after 5 tokens")
    t.prompt()
    t.send("\x03")
    t.expect("Ctrl-C again")
    t.prompt()
    t.send("\x03")
    assert t.leave() == 0


def test_one_interrupt_does_not_leave(chat):
    t = chat()
    t.send("\x03")
    t.expect("Ctrl-C again")
    t.prompt()
    t.say("/speed")
    t.expect("no answer yet")
    t.prompt()
    t.send("\x03")  # not the second in a row
    t.expect("Ctrl-C again")
    t.prompt()
    t.send("\x04")
    assert t.leave() == 0


def test_paste_of_several_lines(chat, tmp_path):
    t = chat()
    t.send("/system \x1b[200~first line\r\nsecond\x1b[2J line\rthird\x1b[201~")
    time.sleep(0.3)
    t.read(0.1)
    assert "system message set" not in t.seen, "line ends of a paste do not send"
    t.say("")
    t.expect("system message set")
    t.prompt()
    assert saved(t, tmp_path / "chat.json")[0]["content"] == "first line\nsecond[2J line\nthird"


@pytest.mark.parametrize("keys, text", [
    ("abcX\x7f", "abc"),
    ("bc\x01/system a\x05d", None),
    ("abc def\x17ghi", "abc ghi"),
    ("abc\x15/system xyz", "xyz"),
    ("abc\x1b[D\x1b[DX", "aXbc"),
    ("abc\x1b[D\x1b[D\x0b!", "a!"),
    ("abc def\x1b[1;5DX", "abc Xdef"),
    ("한국어\x7f\x1b[D말", "한말국"),
    ("👩\u200d👧x\x1b[D\x1b[D1", "1👩\u200d👧x"),
    ("one\x1b\rtwo", "one\ntwo"),
    ("one\x0atwo", "one\ntwo"),
    ("abc\x17def\x19", "defabc"),
    ("ab\x1b[H\x1b[F\x1b[3~c", "abc"),
    ("e\u0301x\x7f\x7fy", "y"),
])
def test_editing(chat, tmp_path, keys, text):
    t = chat()
    if text is None:
        t.send(keys)
        t.say("")
        t.expect("expected one that /help lists|system message set")
    else:
        t.send("/system " + keys)
        t.say("")
        t.expect("system message set")
        t.prompt()
        assert saved(t, tmp_path / "chat.json")[0]["content"] == text


def test_history(chat, tmp_path):
    t = chat()
    for text in ("/system one", "/system two"):
        t.say(text)
        t.prompt()
    t.send("draft\x1b[A\x1b[A")
    t.say("")
    t.prompt()
    assert saved(t, tmp_path / "chat.json")[0]["content"] == "one"
    t.send("/system dra\x1b[A\x1b[Bft")
    t.say("")
    t.prompt()
    assert saved(t, tmp_path / "chat.json")[0]["content"] == "draft"


def test_commands(chat, tmp_path):
    t = chat()
    t.say("/help")
    t.expect("/regen")
    t.prompt()
    t.say("/hlep")
    t.expect("Did you mean /help")
    t.prompt()
    t.say("/set temperature nan")
    t.expect("field temperature: expected .*nan")
    t.prompt()
    t.say("/set top-p 0.5")
    t.prompt()
    t.say("/set")
    t.expect(r"top-p\s+0\.5")
    t.expect(r"max-tokens\s+24")
    t.prompt()
    t.say("/undo")
    t.expect("nothing was asked yet")
    t.prompt()
    t.say("Say one word.")
    t.prompt()
    t.say("/speed on")
    t.prompt()
    t.say("/regen")
    t.expect(r"\(prompt \d+ tokens")
    t.prompt()
    file = tmp_path / "chat.json"
    assert len(saved(t, file)) == 2
    t.say("/undo")
    t.prompt()
    assert saved(t, tmp_path / "undone.json") == []
    t.say(f"/load {file}")
    t.expect("2 messages loaded")
    t.prompt()
    t.say("//not a command")
    t.prompt()
    messages = saved(t, tmp_path / "more.json")
    assert messages[2] == {"role": "user", "content": "/not a command"} and len(messages) == 4
    t.say("/clear")
    t.prompt()
    assert saved(t, tmp_path / "cleared.json") == []
    t.say(f"/load {tmp_path / 'none'}")
    t.expect("/load: .*none")
    t.prompt()
    t.say("/save")
    t.expect("expected a file's name")
    t.prompt()
    t.say("/quit")
    assert t.leave() == 0


def test_full_context(chat, tmp_path):
    t = chat("--ctx", "96")
    t.say("word " * 100)
    t.expect(r"the conversation has \d+ tokens, the context holds 96")
    t.prompt()
    assert saved(t, tmp_path / "chat.json") == [], "what was refused is not part of the chat"
    t.say("Hi")
    t.prompt()
    assert len(saved(t, tmp_path / "again.json")) == 2


def test_narrow_terminal(chat, tmp_path):
    t = chat(columns=20, rows=6)
    text = "the quick brown 여우 jumps over " * 12
    t.send("/system " + text)
    t.send("\x01\x1b[F\x1b[D\x1b[D")
    t.say("")
    t.expect("system message set")
    t.prompt()
    assert saved(t, tmp_path / "c")[0]["content"] == text


def test_dumb_terminal(churon, smollm2):
    t = Terminal(churon, "run", smollm2, "--temperature", "0", "--max-tokens", "8", term="dumb")
    t.expect("> ")
    t.send("/speed\n")
    t.expect("no answer yet")
    t.expect("> ")
    t.send("Say hello.\n")
    t.expect(r"\w+")
    t.expect("> ")
    t.send("\x04")
    assert t.leave() == 0
    assert "\x1b" not in t.seen
    t.close()


def test_terminal_goes_away(churon, smollm2):
    t = Terminal(churon, "run", smollm2)
    t.prompt()
    os.close(t.fd)
    end = time.monotonic() + 20
    while time.monotonic() < end:
        pid, status = os.waitpid(t.pid, os.WNOHANG)
        if pid:
            assert os.waitstatus_to_exitcode(status) in (0, 129)
            return
        time.sleep(0.1)
    os.kill(t.pid, signal.SIGKILL)
    os.waitpid(t.pid, 0)
    raise AssertionError("it did not end")


def test_answers_do_not_control_the_terminal(churon, smollm2):
    """A token that is an escape byte comes out as U+FFFD on a terminal, and as itself in a pipe."""
    import subprocess
    prompt = "".join(f"{c}\x1b[31m " for c in "abcdef") + "g"
    command = [churon, "run", smollm2, prompt, "--raw", "--temperature", "0", "--max-tokens", "16", "--quiet"]
    piped = subprocess.run(command, capture_output=True).stdout
    assert b"\x1b[31m" in piped, "the model repeats what it sees"
    t = Terminal(*command)
    t.expect("�\\[31m")
    assert t.leave() == 0
    assert "\x1b" not in t.seen
    t.close()
