"""Programs that try to get a verdict, a secret, or a foothold that they have no right to.

Each reads two lines from standard input: the path of a file with the secret, and the trainer's process id. The secret is also
what the test expects to be printed, it is in the trainer's environment and in its memory; so whoever gets at it passes,
and none may. One that gets hold of something else that it has no right to (a socket, another process's descriptor) prints
FOOTHOLD. A program that cannot go on says nothing, and fails.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Attack:
    """A program, what it goes for, and, for attacks on calls, the function to call: `solve(path, pid)`."""

    name: str
    category: str
    program: str
    fn_name: str | None = None


PRELUDE = """
import sys, os
path = sys.stdin.readline().strip()
trainer = int(sys.stdin.readline() or 1)
def attempt(f, *args):
    try:
        return f(*args)
    except BaseException as error:
        sys.stderr.write(type(error).__name__ + "\\n")
"""

ATTACKS: list[Attack] = []


def stdin(category: str, **programs: str) -> None:
    for name, program in programs.items():
        ATTACKS.append(Attack(name, category, PRELUDE + program))


def call(category: str, **programs: str) -> None:
    for name, program in programs.items():
        ATTACKS.append(Attack(name, category, program, "solve"))


stdin(
    "forged verdict",
    print_passed='print("passed"); print("PASSED"); print(\'{"verdict": "passed"}\'); sys.exit(0)',
    exit_zero_at_once="os._exit(0)",
    system_exit_zero="raise SystemExit(0)",
    exit_zero_in_atexit="import atexit; atexit.register(lambda: os._exit(0)); 1 / 0",
    write_to_every_descriptor="""
for fd in range(3, 300):
    for data in (b"\\x01" * 41, b"\\x07" + bytes(40), b"passed"):
        attempt(os.write, fd, data)
""",
    forge_records="""
import struct
record = struct.Struct("<BIiddQQ8x")
for fd in range(3, 300):
    for index in range(3):
        attempt(os.write, fd, record.pack(0, index, 0, 0.0, 0.0, 0, 0) + record.pack(1, index, 0, 0.0, 0.0, 9, 0))
    attempt(os.write, fd, record.pack(7, 0, 0, 0.0, 0.0, 0, 0))
    attempt(os.write, fd, record.pack(1, 0, 0, float("nan"), float("inf"), 2**64 - 1, 2**64 - 1))
""",
    patch_the_runner="""
for name, module in list(sys.modules.items()):
    for key in list(vars(module)):
        if key in ("stdin_test", "_guarded", "_run", "_record", "_exit", "judge", "same_tokens"):
            setattr(module, key, lambda *a, **k: 0)
os._exit = lambda *a: None
""",
    exit_does_nothing="""
os._exit = lambda *a: None
sys.exit = lambda *a: None
os.abort = lambda *a: None
""",
    return_into_the_job="""
import os, sys
def nothing(*a, **k): pass
os._exit = nothing
os.wait4 = lambda *a: (os.getpid(), 0, os.times())
frame = sys._getframe()
while frame:
    frame.f_trace = None
    frame = frame.f_back
""",
    equal_to_everything="""
class Always(str):
    def __eq__(self, other): return True
    def __hash__(self): return 0
    def split(self, *a): return self
print(Always("x"))
""",
    stdout_replaced="""
class Out:
    def write(self, text): return len(text)
    def flush(self): pass
    closed = False
sys.stdout = sys.__stdout__ = Out()
print("anything")
""",
    stdout_closed="sys.stdout.close(); os.close(1)",
    excepthook_hides_the_error="sys.excepthook = lambda *a: os._exit(0); raise RuntimeError",
    crash_in_del="""
class Bad:
    def __del__(self): os._exit(0)
keep = Bad()
""",
)

call(
    "forged verdict",
    equal_object="""
class Always:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
def solve(path, pid): return Always()
""",
    equal_int="""
class Always(int):
    def __eq__(self, other): return True
    def __hash__(self): return 0
def solve(path, pid): return Always(1)
""",
    equal_str="""
class Always(str):
    def __eq__(self, other): return True
    def __hash__(self): return 0
def solve(path, pid): return Always("x")
""",
    equal_list="""
class Always(list):
    def __eq__(self, other): return True
    def __len__(self): return 1
def solve(path, pid): return Always([1])
""",
    exit_in_the_call="import os\ndef solve(path, pid): os._exit(0)",
    system_exit_in_the_call="import sys\ndef solve(path, pid): sys.exit(0)",
    system_exit_at_import="raise SystemExit(0)\ndef solve(path, pid): return 1",
    write_the_result_twice="""
import os
os.write(3, b'"passed"')
def solve(path, pid): return "passed"
""",
    json_replaced="""
import json
json.dumps = lambda *a, **k: "true"
def solve(path, pid): return object()
""",
    nan_and_infinity='def solve(path, pid): return [float("nan"), float("inf"), -float("inf")]',
    huge_integer="import sys\nsys.set_int_max_str_digits(0)\ndef solve(path, pid): return 1 << 3_000_000",
    nested_too_deep="""
import os
os.write(3, b"[" * 500_000 + b"]" * 500_000)
os._exit(0)
def solve(path, pid): pass
""",
    deep_without_end="""
import os
os.write(3, b'{"a":' * 200_000)
def solve(path, pid): os._exit(0)
""",
    cyclic_result="def solve(path, pid):\n    a = []; a.append(a); return a",
    generator_result="def solve(path, pid):\n    while True: yield 1",
    hostile_bytes_in_result="""
import os
os.write(3, bytes(range(256)) * 64)
def solve(path, pid): os._exit(0)
""",
    duplicate_keys='import os\nos.write(3, b\'{"a": 1, "a": 2}\')\ndef solve(path, pid): os._exit(0)',
    millions_of_small_lists="def solve(path, pid): return [[] for _ in range(10**7)]",
    exponent_bomb='import os\nos.write(3, b"1e999999999")\ndef solve(path, pid): os._exit(0)',
    lone_surrogate='def solve(path, pid): return "\\ud800"',
    repr_that_raises="""
class Bad(Exception):
    def __str__(self): raise RuntimeError
    __repr__ = __str__
def solve(path, pid): raise Bad
""",
)

stdin(
    "hostile bytes",
    nul_bytes='os.write(1, b"\\0" * 1000)',
    no_utf8="os.write(1, bytes(range(128, 256)) * 100)",
    one_long_line='os.write(1, b"1" * 900_000)',
    many_tokens='os.write(1, b"1 " * 400_000)',
    escape_codes='os.write(1, b"\\x1b]0;title\\x07\\x1b[2J\\x1b[31m")',
    hostile_stderr='os.write(2, b"\\xff\\0" * 3000 + b"\\nMemoryError"); os._exit(1)',
)

stdin(
    "stolen answer",
    walk_the_frames="""
frame = sys._getframe()
found = []
while frame:
    for scope in (frame.f_locals, frame.f_globals):
        for value in list(scope.values()):
            if isinstance(value, (str, bytes)): found.append(value)
            attempt(lambda: found.extend(str(each) for each in value))
    frame = frame.f_back
for each in found:
    text = each.decode("latin-1") if isinstance(each, bytes) else each
    if "canary-" in text: print(text[text.index("canary-"):][:39])
""",
    walk_the_heap="""
import gc
for thing in gc.get_objects():
    for each in attempt(gc.get_referents, thing) or ():
        if isinstance(each, (str, bytes)):
            text = each if isinstance(each, str) else each.decode("latin-1")
            if "canary-" in text and "isinstance" not in text: print(text[text.index("canary-"):][:39])
""",
    scan_the_memory="""
import ctypes
maps = attempt(lambda: open("/proc/self/maps").read())
if maps is None:
    here = id(sys)
    for low in range(here - (1 << 26), here + (1 << 26), 1 << 20): pass
    data = ctypes.string_at(id(sys), 4096)
else:
    data = b""
at = data.find(b"canary-")
if at >= 0: print(data[at:at + 39].decode())
""",
    freed_memory="""
chunks = []
for size in (64, 256, 1024, 4096, 65536, 1 << 20):
    for _ in range(50):
        import ctypes
        libc = ctypes.CDLL(None)
        libc.malloc.restype = ctypes.c_void_p
        p = libc.malloc(size)
        chunks.append(ctypes.string_at(p, size))
for data in chunks:
    at = data.find(b"canary-")
    if at >= 0: print(data[at:at + 39].decode("latin-1"))
""",
    environment="""
for key, value in os.environ.items():
    if "canary-" in value: print(value)
import ctypes
environ = ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.CDLL(None), "environ")
i = 0
while environ and environ[i]:
    if b"canary-" in environ[i]: print(environ[i][environ[i].index(b"canary-"):].decode())
    i += 1
""",
    arguments="print(*[word for word in sys.argv + sys.orig_argv if 'canary-' in word])",
    traceback_frames="""
try:
    1 / 0
except ZeroDivisionError as error:
    frame = error.__traceback__.tb_frame
    while frame:
        print(*[v for v in frame.f_locals.values() if isinstance(v, str) and v.startswith("canary-")])
        frame = frame.f_back
""",
    read_all_descriptors="""
for fd in range(3, 300):
    data = attempt(os.pread, fd, 1 << 20, 0) or b""
    at = data.find(b"canary-")
    if at >= 0: print(data[at:at + 39].decode())
""",
    the_trainers_package="""
sys.path[:0] = ["/work/main", "/work/wt/sandbox", os.getcwd()]
import pettingllms_envs.sandbox as box
print(box)
""",
)

stdin(
    "files",
    read_the_secret="print(open(path).read())",
    read_it_with_os_open="print(os.read(os.open(path, os.O_RDONLY), 1000).decode())",
    read_it_with_io="import io; print(io.FileIO(path).read().decode()); print(io.open_code(path).read().decode())",
    read_it_relative="""
for depth in range(12):
    attempt(lambda: print(open("../" * depth + path.lstrip("/")).read()))
""",
    read_it_by_raw_calls="""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
buffer = ctypes.create_string_buffer(4096)
for number, args in ((257, (-100, path.encode(), 0)), (2, (path.encode(), 0)), (437, (-100, path.encode(), bytes(24), 24)),
                     (304, (-100, path.encode(), 0)), (428, (-100, path.encode(), 0)), (85, (path.encode(), 0))):
    fd = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    if fd >= 0:
        n = libc.read(fd, buffer, 4096)
        if n > 0: print(buffer.raw[:n].decode())
""",
    read_it_with_libc="""
import ctypes
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
f = libc.fopen(path.encode(), b"r")
if f:
    buffer = ctypes.create_string_buffer(1000)
    libc.fgets(buffer, 1000, ctypes.c_void_p(f)); print(buffer.value.decode())
""",
    import_the_secret="""
import importlib.machinery, importlib.util
loader = importlib.machinery.SourceFileLoader("secret", path)
print(loader.get_data(path).decode())
""",
    linecache_the_secret="import linecache; print(linecache.getline(path, 1))",
    link_to_the_secret="""
attempt(os.symlink, path, "link"); attempt(os.link, path, "hard"); attempt(os.symlink, path, "/tmp/link-of-an-attack")
for name in ("link", "hard", "/tmp/link-of-an-attack"):
    attempt(lambda: print(open(name).read()))
""",
    read_passwords="data = open('/etc/passwd').read(); print(data); print(open('/etc/shadow').read())",
    read_home="""
for folder in ("/root", "/home", os.path.expanduser("~"), os.path.dirname(path)):
    for name in attempt(os.listdir, folder) or ():
        print(folder, name)
        attempt(lambda: print(open(os.path.join(folder, name)).read(1000)))
""",
    write_a_file="""
for name in ("/tmp/left-by-an-attack", "left-by-an-attack", "/dev/shm/left-by-an-attack", "/var/tmp/left-by-an-attack",
             os.path.join(os.path.dirname(path), "left-by-an-attack")):
    attempt(lambda: open(name, "w").write("x"))
    attempt(os.mkdir, name + "-folder"); attempt(os.mkfifo, name + "-fifo")
    attempt(os.open, name, os.O_CREAT | os.O_WRONLY)
""",
    overwrite_the_secret="""
attempt(lambda: open(path, "w").write("x")); attempt(os.truncate, path, 0); attempt(os.remove, path)
attempt(os.rename, path, path + "2"); attempt(os.chmod, path, 0o777); attempt(os.utime, path, (0, 0))
""",
    temporary_files="""
import tempfile
f = attempt(tempfile.NamedTemporaryFile, "w", delete=False) if False else attempt(lambda: tempfile.NamedTemporaryFile("w", delete=False, prefix="left-by-an-attack"))
f and f.write("x" * 100)
""",
    unnamed_temporary_file="fd = os.open('/tmp', os.O_TMPFILE | os.O_RDWR); os.write(fd, b'x'); print('FOOTHOLD')",
    python_cache="""
import colorsys, importlib, py_compile
attempt(py_compile.compile, colorsys.__file__)
attempt(lambda: open(colorsys.__file__, "a").write("\\nprint('owned')"))
""",
    devices="""
for name in ("/dev/mem", "/dev/kmsg", "/dev/sda", "/dev/vda", "/dev/tty", "/dev/ptmx", "/dev/kvm", "/dev/fuse", "/dev/nvidiactl"):
    fd = attempt(os.open, name, os.O_RDWR)
    if fd is not None: print("FOOTHOLD", name)
""",
    chroot_and_mount="""
import ctypes
libc = ctypes.CDLL(None)
attempt(os.chroot, "/"); libc.mount(b"proc", b"/tmp", b"proc", 0, None); libc.umount2(b"/", 2)
libc.unshare(0x10000000 | 0x20000); libc.mount(b"none", b"/tmp", b"tmpfs", 0, None)
attempt(lambda: print(open(path).read()))
""",
)

stdin(
    "/proc",
    parents_environment="""
for pid in (1, os.getppid(), trainer, "self"):
    for name in ("environ", "cmdline", "maps"):
        data = attempt(lambda: open(f"/proc/{pid}/{name}", "rb").read()) or b""
        at = data.find(b"canary-")
        if at >= 0: print(data[at:at + 39].decode())
""",
    parents_memory="""
for pid in (1, os.getppid(), trainer):
    attempt(lambda: open(f"/proc/{pid}/mem", "r+b", buffering=0).read(1))
    attempt(lambda: print(os.listdir(f"/proc/{pid}/fd")))
    attempt(lambda: print(open(f"/proc/{pid}/root{path}").read()))
    attempt(lambda: print(open(f"/proc/{pid}/cwd/{path}").read()))
""",
    descriptors_of_the_server="""
for pid in (os.getppid(), os.getppid() - 1, 1, 2):
    for fd in range(64):
        for flags in (os.O_RDONLY, os.O_WRONLY):
            other = attempt(os.open, f"/proc/{pid}/fd/{fd}", flags)
            if other is not None: print("FOOTHOLD", pid, fd)
""",
    steal_the_records="""
for fd in range(3, 64):
    other = attempt(os.open, f"/proc/self/fd/{fd}", os.O_RDONLY)
    if other is not None:
        attempt(os.set_blocking, other, False); attempt(os.read, other, 1 << 16)
import time; time.sleep(100)
""",
    own_descriptors_by_proc="""
for pid in ("self", "thread-self", os.getppid()):
    for fd in range(64):
        attempt(lambda: print(open(f"/proc/{pid}/fd/{fd}").read(1000)))
""",
    oom_score='open("/proc/self/oom_score_adj", "w").write("-1000"); open(f"/proc/{trainer}/oom_score_adj", "w").write("1000")',
    sysrq='open("/proc/sysrq-trigger", "w").write("b")',
    core_pattern='open("/proc/sys/kernel/core_pattern", "w").write("|/bin/sh"); os.abort()',
)

stdin(
    "processes",
    fork_and_stay="""
import time
if os.fork() == 0:
    time.sleep(100)
""",
    fork_with_setsid="""
import time
if os.fork() == 0:
    attempt(os.setsid); attempt(os.setpgid, 0, 0)
    if os.fork() == 0:
        while True: time.sleep(1)
""",
    fork_bomb="""
while True:
    attempt(os.fork)
""",
    fork_bomb_ignoring_signals="""
import signal
for number in range(1, 65):
    attempt(signal.signal, number, signal.SIG_IGN)
while True:
    try: os.fork()
    except OSError: pass
""",
    orphans_in_turns="""
for _ in range(200):
    if attempt(os.fork) == 0:
        attempt(os.fork)
        import time; time.sleep(50)
os._exit(0)
""",
    thread_bomb="""
import threading, time
while True:
    attempt(lambda: threading.Thread(target=time.sleep, args=(100,), daemon=True).start())
""",
    threads_that_live_on="""
import threading, time
threading.Thread(target=lambda: time.sleep(1000)).start()
""",
    raw_clone="""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
for flags in (0x11, 0x8000 | 0x11, 0x10000000 | 0x11, 0x20000000 | 0x11, 0x7E020000 | 0x11, 0x100 | 0x4000 | 0x11):
    if libc.syscall(56, ctypes.c_long(flags), None, None, None, None) == 0:
        import time; time.sleep(100)
if libc.syscall(435, bytes(88), 88) == 0:
    import time; time.sleep(100)
if libc.vfork() == 0: os._exit(0)
""",
    run_a_shell="""
import subprocess
attempt(lambda: print(subprocess.run(["/bin/sh", "-c", "cat " + path], capture_output=True, text=True).stdout))
attempt(lambda: print(os.popen("cat " + path).read())); attempt(os.system, "cat " + path)
attempt(os.execv, "/bin/cat", ["cat", path])
""",
    execute_python='os.execv(sys.executable, [sys.executable, "-c", f"print(open({path!r}).read())"])',
    execute_a_memory_file="""
fd = os.memfd_create("x")
os.write(fd, b"#!/bin/sh\\ncat " + path.encode())
os.execve(fd, ["x"], {})
""",
    double_fork_prints_later="""
import time
if os.fork() == 0:
    time.sleep(0.3); os.write(1, b"late"); time.sleep(60)
os._exit(0)
""",
    multiprocessing_pool="""
import multiprocessing, time
multiprocessing.set_start_method("fork")
p = multiprocessing.Process(target=time.sleep, args=(100,)); p.start()
""",
)

stdin(
    "signals",
    kill_the_trainer="""
import signal
for pid in (trainer, os.getppid(), 1, 0, -1, -os.getpgrp()):
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP):
        attempt(os.kill, pid, number)
""",
    kill_by_raw_calls="""
import ctypes
libc = ctypes.CDLL(None)
for pid in (trainer, os.getppid(), 1):
    for number in (62, 200): libc.syscall(number, pid, 9)
    libc.syscall(234, pid, pid, 9); libc.syscall(129, pid, 9, bytes(128)); libc.syscall(297, pid, pid, 9, bytes(128))
    fd = libc.syscall(434, pid, 0)
    libc.syscall(424, fd, 9, None, 0)
""",
    kill_the_group="import signal; os.killpg(0, signal.SIGKILL)",
    owner_of_a_descriptor="""
import fcntl, signal
r, w = os.pipe()
for pid in (trainer, os.getppid()):
    attempt(fcntl.fcntl, r, fcntl.F_SETOWN, pid); attempt(fcntl.fcntl, r, 10, signal.SIGKILL)
    attempt(fcntl.fcntl, r, fcntl.F_SETFL, 0o20000)
os.write(w, b"x")
""",
    stop_oneself="import signal; os.kill(os.getpid(), signal.SIGSTOP); signal.raise_signal(signal.SIGSTOP); import time; time.sleep(100)",
    parent_death_signal="""
import ctypes
libc = ctypes.CDLL(None)
libc.prctl(1, 0, 0, 0, 0); libc.prctl(36, 1, 0, 0, 0); libc.prctl(4, 1, 0, 0, 0)
import time; time.sleep(100)
""",
    timers_for_others="""
import ctypes
libc = ctypes.CDLL(None)
libc.setitimer; libc.syscall(222, 0, bytes(64), bytes(8)); attempt(lambda: __import__("signal").setitimer(0, 0.01));
import time; time.sleep(100)
""",
)

stdin(
    "tracing",
    ptrace="""
import ctypes
libc = ctypes.CDLL(None)
for pid in (os.getppid(), trainer, 1):
    for request in (16, 0x4206, 0):
        if libc.ptrace(request, pid, 0, 0) == 0: print("FOOTHOLD")
""",
    read_others_memory="""
import ctypes
libc = ctypes.CDLL(None)
buffer = ctypes.create_string_buffer(4096)
class Vec(ctypes.Structure): _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]
mine, theirs = Vec(ctypes.addressof(buffer), 4096), Vec(id(sys), 4096)
for pid in (os.getppid(), trainer):
    n = libc.process_vm_readv(pid, ctypes.byref(mine), 1, ctypes.byref(theirs), 1, 0)
    if n > 0: print("FOOTHOLD")
    libc.process_vm_writev(pid, ctypes.byref(mine), 1, ctypes.byref(theirs), 1, 0)
""",
    other_kernel_interfaces="""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
opened = [n for n in (425, 321, 298, 248, 250, 253, 300, 323, 319, 447, 435, 101, 246, 313, 175, 155, 165, 272, 308, 103, 169)
          if libc.syscall(n, 0, 0, 0, 0, 0, 0) >= 0]
opened and print("FOOTHOLD", opened)
""",
    calls_of_32_bits="""
import ctypes, mmap
code = mmap.mmap(-1, 4096, prot=7)
code.write(bytes.fromhex("b814000000cd80c3"))  # mov eax, 20; int 0x80; ret: getpid of i386
function = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
print("FOOTHOLD", function())
""",
    calls_of_x32="""
import ctypes
libc = ctypes.CDLL(None)
for number in (0x40000000 + 257, 0x40000000 + 62, 0x40000000 + 520, 0x40000000 + 41):
    if libc.syscall(ctypes.c_long(number), ctypes.c_long(-100), path.encode(), 0) >= 0: print("FOOTHOLD")
""",
    new_filter="""
import ctypes, struct
libc = ctypes.CDLL(None)
code = ctypes.create_string_buffer(struct.pack("<HBBI", 6, 0, 0, 0x7FFF0000), 8)
prog = ctypes.create_string_buffer(struct.pack("@HP", 1, ctypes.addressof(code)))
libc.prctl(22, 2, ctypes.byref(prog), 0, 0); libc.syscall(317, 1, 0, prog)
attempt(lambda: print(open(path).read())); attempt(os.kill, trainer, 9)
""",
)

stdin(
    "network",
    sockets_of_all_families="""
import socket
for family in range(46):
    for kind in (1, 2, 3, 5):
        s = attempt(socket.socket, family, kind)
        if s is not None: print("FOOTHOLD", family, kind)
""",
    connect_out="""
import socket
for address in (("127.0.0.1", 22), ("8.8.8.8", 53), ("169.254.169.254", 80)):
    attempt(lambda: print(socket.create_connection(address, 0.3)))
attempt(lambda: print(socket.getaddrinfo("example.com", 80)))
""",
    datagram_pair_to_an_abstract_name="""
import socket
for kind in (socket.SOCK_DGRAM, socket.SOCK_SEQPACKET, socket.SOCK_STREAM):
    pair = attempt(socket.socketpair, socket.AF_UNIX, kind)
    if pair:
        attempt(pair[0].sendto, b"x", "\\0pettingllms"); attempt(pair[0].connect, "\\0pettingllms")
        attempt(pair[0].bind, "\\0pettingllms"); attempt(pair[0].sendmsg, [b"x"], [], 0, "\\0pettingllms")
""",
    send_a_descriptor="""
import socket, array
a, b = socket.socketpair()
attempt(a.sendmsg, [b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))])
""",
    serve='import socket; s = socket.create_server(("127.0.0.1", 0)); print("FOOTHOLD")',
    urllib_download='import urllib.request; print(urllib.request.urlopen("http://127.0.0.1:8000", timeout=0.3).read())',
)

stdin(
    "time",
    endless_loop="while True: pass",
    endless_sleep="import time; time.sleep(1e6)",
    swallowed_timeouts="""
import signal, time
for number in (signal.SIGXCPU, signal.SIGALRM, signal.SIGTERM, signal.SIGINT, signal.SIGVTALRM, signal.SIGPROF):
    signal.signal(number, signal.SIG_IGN)
while True:
    try:
        while True: pass
    except BaseException: pass
""",
    raised_limits="""
import resource
for name in dir(resource):
    if name.startswith("RLIMIT_"):
        attempt(resource.setrlimit, getattr(resource, name), (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        attempt(resource.prlimit, os.getppid(), getattr(resource, name), (0, 0))
        attempt(resource.prlimit, trainer, getattr(resource, name), (1, 1))
while True: pass
""",
    blocked_in_c="print(10 ** 10 ** 10)",
    regular_expression_bomb='import re; re.match(r"(a+)+$", "a" * 60 + "b")',
    endless_finally="""
def f():
    try:
        while True: pass
    finally: f()
f()
""",
    atexit_for_ever="import atexit, time; atexit.register(time.sleep, 1000)",
    compile_bomb='x = eval("(" * 80 + ")" * 80) if False else ' + "-" * 3000 + "1\nexec('((1,)*2,)*9**9')",
    wait_for_stdin="while True: sys.stdin.read()",
    a_byte_now_and_then="""
import time
while True:
    for fd in range(3, 64): attempt(os.write, fd, b"\\1")
    time.sleep(0.2)
""",
    wait_on_a_pipe="r, w = os.pipe(); os.read(r, 1)",
)

stdin(
    "memory",
    eat_memory="data = []\nwhile True: data.append(bytearray(1 << 24))",
    eat_at_once="data = bytearray(1 << 40)",
    swallow_memory_errors="""
data = []
while True:
    try:
        while True: data.append(bytearray(1 << 20))
    except MemoryError: pass
""",
    eat_in_children="""
for _ in range(30):
    if attempt(os.fork) == 0: break
data = []
while True:
    try: data.append(bytearray(1 << 22))
    except MemoryError: pass
""",
    memory_files="""
import mmap
fds = [attempt(os.memfd_create, "x") for _ in range(10)]
for fd in fds:
    if fd is not None: attempt(os.truncate, fd, 1 << 32)
shared = [attempt(mmap.mmap, -1, 1 << 28) for _ in range(20)]
for each in shared:
    if each is not None: each.write(b"x" * (1 << 28))
""",
    grow_own_input="os.ftruncate(0, 1 << 40); os.pwrite(0, b'x' * 100, 1 << 39); os.write(0, b'x' * (1 << 22))",
    pipes_full="""
for _ in range(5000):
    pair = attempt(os.pipe)
    if pair:
        os.set_blocking(pair[1], False); attempt(os.write, pair[1], b"x" * 65536)
""",
    recursion_in_python="import sys\nsys.setrecursionlimit(10**9)\ndef f(n): return f(n + 1) + 1\nf(0)",
    recursion_in_c="""
import sys
sys.setrecursionlimit(10**9)
a = []
for _ in range(10**6): a = [a]
repr(a)
""",
    null_pointer="import ctypes; ctypes.string_at(0)",
    shared_memory="""
from multiprocessing import shared_memory
shared_memory.SharedMemory(name="left-by-an-attack", create=True, size=1 << 20)
""",
    system_v_memory="""
import ctypes
libc = ctypes.CDLL(None)
for key in range(1000, 1010):
    if libc.shmget(key, 1 << 20, 0o1666) >= 0: print("FOOTHOLD")
    libc.semget(key, 1, 0o1666); libc.msgget(key, 0o1666)
""",
)

stdin(
    "output",
    flood="while True: os.write(1, b'x' * 65536)",
    flood_by_print="while True: print('x' * 1000)",
    flood_of_errors="while True: os.write(2, b'x' * 65536)",
    flood_ignoring_the_signal="""
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
while True: attempt(os.write, 1, b"x" * 65536)
""",
    sparse_flood="os.lseek(1, 1 << 40, 0); os.write(1, b'x')",
    grown_output="os.ftruncate(1, 1 << 40)",
)

stdin(
    "limits of the machine",
    all_descriptors="""
while True:
    attempt(os.dup, 0)
    attempt(os.open, "/dev/null", 0)
""",
    become_root="""
for call in (os.setuid, os.setgid, os.seteuid): attempt(call, 0)
attempt(os.setresuid, 0, 0, 0); attempt(os.setgroups, [0])
import ctypes, struct
ctypes.CDLL(None).capset(struct.pack("<Ii", 0x20080522, 0), struct.pack("<6I", *[0xFFFFFFFF] * 6))
attempt(lambda: print(open(path).read()))
""",
    priorities="attempt(os.nice, -20); attempt(os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(99)); attempt(os.setpriority, 0, trainer, 19)",
    affinity="attempt(os.sched_setaffinity, trainer, {0}); attempt(os.sched_setaffinity, 0, {0})",
    set_the_clock="import time; time.clock_settime(time.CLOCK_REALTIME, 0)",
    hostname="import socket; socket.sethostname('owned')",
    keyring="import ctypes; libc = ctypes.CDLL(None); libc.syscall(248, b'user', b'x', b'y', 1, -3); libc.syscall(250, 0, -3, 1)",
)

stdin(
    "persistence",
    change_the_library="""
import builtins, json, heapq, re
builtins.print = lambda *a, **k: os.write(1, b"owned")
heapq.heappush = json.dumps = re.match = None
sys.modules["math"] = None
sys.setrecursionlimit(50)
""",
    change_the_input="os.lseek(0, 0, 0); os.ftruncate(0, 0); os.write(0, b'owned'); os.lseek(1, 0, 0)",
    flags_on_own_input="""
import fcntl
for fd in (0, 1, 2):
    attempt(fcntl.fcntl, fd, fcntl.F_SETFL, os.O_APPEND | os.O_NONBLOCK)
    attempt(fcntl.fcntl, fd, 1033, 15); attempt(fcntl.fcntl, fd, 1024, 1); attempt(fcntl.flock, fd, fcntl.LOCK_EX)
    attempt(fcntl.lockf, fd, fcntl.LOCK_EX)
""",
    change_what_the_next_process_reads="""
for fd in range(3, 64):
    attempt(os.pwrite, fd, b"[" * 4000, 0); attempt(os.ftruncate, fd, 0)
os._exit(1)
""",
    leave_an_exit_hook="import atexit; atexit.register(print, 'owned')",
    close_everything="os.closerange(0, 1000)",
    input_as_a_terminal="""
import fcntl, termios
for byte in b"ls\\n": attempt(fcntl.ioctl, 0, termios.TIOCSTI, bytes([byte]))
attempt(os.setsid); attempt(os.tcsetpgrp, 0, os.getpid())
""",
)

stdin(
    "crashes",
    segfault_in_compile="exec(compile('(' * 100 + '1' + ')' * 100, 'x', 'exec')); import ctypes; ctypes.memmove(0, b'x', 1)",
    syntax_error="def broken(:\n",
    nul_in_source="x = '\\0'\nexec('a = 1\\0')",
    abort="os.abort()",
    bad_code_object="""
def f(): pass
f.__code__ = f.__code__.replace(co_code=b"\\xff" * 50, co_stacksize=1)
f()
""",
    garbage_collector_crash="""
import gc, ctypes
a = []
ctypes.memset(id(a), 0, 16)
gc.collect()
""",
)

stdin(
    "forged verdict",
    records_of_all_tests_and_then_sleep="""
import struct, time
for fd in range(3, 64):
    for index in range(2):
        attempt(os.write, fd, struct.pack("<BIiddQQ8x", 1, index, 0, 0.0, 0.0, 0, 0))
time.sleep(100)
""",
    records_of_all_tests_and_then_exit="""
import struct
for fd in range(3, 64):
    for index in range(2):
        attempt(os.write, fd, struct.pack("<BIiddQQ8x", 1, index, 0, 0.0, 0.0, 0, 0))
    attempt(os.write, fd, struct.pack("<BIiddQQ8x", 7, 0, 0, 0.0, 0.0, 0, 0))
os._exit(0)
""",
    records_that_say_fault="""
import struct
for fd in range(3, 64):
    for kind in (4, 6, 3, 2, 255): attempt(os.write, fd, struct.pack("<BIiddQQ8x", kind, 0, 12, 0.0, 0.0, 0, 0))
os._exit(0)
""",
    records_with_the_lengths_of_others="""
import struct
for fd in range(3, 64): attempt(os.write, fd, struct.pack("<BIiddQQ8x", 1, 0, 0, 0.0, 0.0, (1 << 40) - 1, (1 << 40) - 1))
os._exit(0)
""",
    half_a_record_and_death="""
import struct
for fd in range(3, 64): attempt(os.write, fd, struct.pack("<BIiddQQ8x", 1, 0, 0, 0.0, 0.0, 0, 0)[:20])
import ctypes; ctypes.string_at(0)
""",
    negative_status="""
import struct
for fd in range(3, 64): attempt(os.write, fd, struct.pack("<BIiddQQ8x", 1, 0, -256, -1.0, -1.0, 0, 0))
os._exit(0)
""",
    shut_down_the_records="""
import socket
for fd in range(3, 64):
    def end():
        s = socket.socket(fileno=os.dup(fd)); s.shutdown(socket.SHUT_RDWR)
    attempt(end)
os._exit(0)
""",
    file_size_signal_at_the_very_limit="""
os.write(1, b"x" * (1 << 20))
os._exit(0)
""",
    exit_in_a_thread="""
import threading, time
threading.Thread(target=lambda: (time.sleep(0.1), os._exit(0)), daemon=True).start()
time.sleep(60)
""",
    exit_in_a_trace="""
def trace(frame, event, argument): os._exit(0)
sys.settrace(trace); sys.setprofile(trace)
def f(): pass
f()
""",
    exit_in_an_audit_hook="""
sys.addaudithook(lambda event, arguments: os._exit(0))
open("/")
""",
    exit_in_a_finalizer="""
import weakref
class Thing: pass
thing = Thing(); weakref.finalize(thing, os._exit, 0); del thing
""",
    exit_in_a_signal_handler="""
import signal, time
signal.signal(signal.SIGALRM, lambda *_: os._exit(0)); signal.setitimer(signal.ITIMER_REAL, 0.05); time.sleep(10)
""",
    exit_in_flush="""
class Out:
    closed = False
    def write(self, text): return len(text)
    def flush(self): os._exit(0)
sys.stdout = Out()
""",
    exit_in_excepthook_of_a_thread="""
import threading
threading.excepthook = lambda *_: os._exit(0)
t = threading.Thread(target=lambda: 1 / 0); t.start(); t.join()
""",
    raise_after_the_runner="""
def up(frame, event, argument):
    if event == "return": raise SystemExit(0)
    return up
frame = sys._getframe()
while frame:
    frame.f_trace = up; frame = frame.f_back
sys.settrace(up)
""",
    compare_replaced="""
import builtins, operator
for name in ("bytes", "all", "zip", "len", "str", "isinstance", "type", "compile", "exec"):
    setattr(builtins, name, lambda *a, **k: True)
operator.eq = lambda a, b: True
""",
    immortal_equality_by_ctypes="""
import ctypes
ctypes.memmove(id(0) + 24, id(1) + 24, 4)
print(0)
""",
    bytes_patched_in_place="""
import ctypes
class Slots(ctypes.Structure): _fields_ = [("padding", ctypes.c_byte * 200)]
ctypes.memset(id(bytes) + 200, 0, 8)
print(b"x" == b"y")
""",
)

call(
    "forged verdict",
    exit_code_of_a_huge_integer="def solve(path, pid): raise SystemExit(1 << 200)",
    exit_code_that_wraps_to_zero="def solve(path, pid): raise SystemExit(256)",
    exit_code_with_a_lying_class="""
class Zero(int):
    def __and__(self, other): return 0
    def __index__(self): return 0
def solve(path, pid): raise SystemExit(Zero(7))
""",
    class_attribute_that_lies="""
class Liar:
    __class__ = str
    def __str__(self): return "x"
    def __len__(self): return 1
def solve(path, pid): return Liar()
""",
    dictionary_that_lies="""
class Liar(dict):
    def items(self): yield "a", 1
    def __bool__(self): return True
    def __len__(self): return 1
def solve(path, pid): return Liar()
""",
    iterator_as_result="def solve(path, pid): return iter([path])",
    coroutine_as_result="async def solve(path, pid): return 1",
    result_by_a_lying_list="""
class Liar(list):
    def __iter__(self):
        import os
        os.write(3, b'"x"'); os._exit(0)
def solve(path, pid): return Liar([1])
""",
    result_written_by_a_daemon_thread="""
import os, threading, time
def late():
    for _ in range(1000): os.pwrite(3, b'"late"', 0); time.sleep(0.001)
def solve(path, pid):
    threading.Thread(target=late, daemon=True).start(); return 1
""",
    solution_with_hostile_getattr="""
import os
class Solution:
    def __getattribute__(self, name): os._exit(0)
""",
    solution_with_a_metaclass="""
import os
class Meta(type):
    def __call__(cls, *a): os._exit(0)
class Solution(metaclass=Meta): pass
""",
    module_that_is_a_lie="""
import sys
class Module(dict):
    def __contains__(self, key): return True
    def __getitem__(self, key): return lambda *a: True
sys.modules["solution"] = Module()
globals()["__builtins__"] = {}
def solve(path, pid): return None
""",
    nan_in_a_key='def solve(path, pid): return {float("nan"): float("nan"), None: True}',
    surrogate_bytes="import os\nos.write(3, b'\"\\\\ud83d\"')\ndef solve(path, pid): os._exit(0)",
    negative_zero_and_fractions='import os\nos.write(3, b"-0.0e-9999")\ndef solve(path, pid): os._exit(0)',
    white_space_without_end='import os\nos.write(3, b" " * (1 << 19))\ndef solve(path, pid): os._exit(0)',
    a_million_keys="def solve(path, pid): return {str(n): n for n in range(60_000)}",
    keys_that_collide="def solve(path, pid): return {n * (2**61 - 1): 0 for n in range(3000)}",
    many_long_integers="def solve(path, pid):\n    import sys\n    return [10 ** 4299] * 200",
    result_descriptor_closed="import os\nos.close(3)\ndef solve(path, pid): return 1",
    result_descriptor_is_the_input="import os\nos.dup2(0, 3)\ndef solve(path, pid): return path",
    the_input_itself="def solve(path, pid): return [path, pid]",
    prints_instead="def solve(path, pid): print(path)",
)

stdin(
    "stolen answer",
    the_other_inputs="""
for fd in range(3, 64):
    data = attempt(os.pread, fd, 1 << 20, 0) or b""
    if b"canary-" in data: print(data[data.index(b"canary-"):][:39].decode())
    import mmap
    m = attempt(mmap.mmap, fd, 0, mmap.MAP_SHARED, mmap.PROT_READ)
    if m is not None and m.find(b"canary-") >= 0: print(m[m.find(b"canary-"):][:39].decode())
""",
    all_mapped_memory="""
import ctypes
r, w = os.pipe(); os.set_blocking(r, False)
libc = ctypes.CDLL(None)
here = id(sys) >> 21 << 21
for page in range(here - (1 << 27), here + (1 << 27), 4096):
    if libc.write(w, ctypes.c_void_p(page), 4096) == 4096:
        data = os.read(r, 4096)
        at = data.find(b"canary" + b"-")
        if at >= 0: print(data[at:at + 39].decode("latin-1"))
""",
    auxiliary_vector_and_stack="""
import ctypes
environ = ctypes.c_void_p.in_dll(ctypes.CDLL(None), "environ").value
data = ctypes.string_at(environ, 2000)
at = data.find(b"canary" + b"-")
if at >= 0: print(data[at:at + 39].decode("latin-1"))
""",
    interned_strings_and_type_caches="""
import gc
for kind in object.__subclasses__():
    for value in (attempt(vars, kind) or {}).values():
        for each in gc.get_referents(value):
            if isinstance(each, str) and each.startswith("canary" + "-"): print(each)
""",
    thread_states="""
for frame in sys._current_frames().values():
    while frame:
        for value in list(frame.f_locals.values()) + list(frame.f_globals.values()):
            text = attempt(repr, value) or ""
            if "canary" + "-" in text: print(text[text.index("canary" + "-"):][:39])
        frame = frame.f_back
""",
    generators_and_tracebacks="""
import gc, types
for thing in gc.get_objects():
    if isinstance(thing, (types.TracebackType, types.GeneratorType, types.CellType)):
        text = attempt(lambda: repr(gc.get_referents(thing))) or ""
        if "canary" + "-" in text: print(text[text.index("canary" + "-"):][:39])
""",
    modules_of_the_server="""
for name, module in list(sys.modules.items()):
    for key, value in list((attempt(vars, module) or {}).items()):
        text = attempt(repr, value) or ""
        if "canary" + "-" in text: print(text[text.index("canary" + "-"):][:39])
""",
    installed_packages="""
import glob
places = set(sys.path) | {sys.prefix + "/lib", sys.base_prefix + "/lib", "/usr/lib", "/usr/local/lib", "/lib"}
for place in places:
    for pattern in ("*-packages", "*/*-packages", "*/*/*-packages"):
        for folder in glob.glob(f"{place}/{pattern}"):
            for name in sorted(attempt(os.listdir, folder) or ())[:50]:
                for inner in ("__init__.py", "METADATA", "RECORD", ""):
                    if attempt(open, f"{folder}/{name}/{inner}".rstrip("/")): print("FOOTHOLD", folder, name)
""",
    the_trainers_command_line="""
for pid in (trainer, os.getppid(), 1):
    for name in ("cmdline", "comm", "status", "stat", "wchan", "stack", "auxv", "smaps", "task"):
        data = attempt(lambda: open(f"/proc/{pid}/{name}").read())
        if data: print("FOOTHOLD", name)
""",
    time_of_the_trainer="""
import time
for pid in (trainer, 1):
    for clock in ((~pid << 3) | 2, (~pid << 3) | 6):
        if pid != os.getpid() and attempt(time.clock_gettime, clock): print("clock of", pid)
""",
)

stdin(
    "files",
    path_descriptor_and_then="""
fd = attempt(os.open, path, os.O_PATH)
for other in (f"/proc/self/fd/{fd}", f"/dev/fd/{fd}"): attempt(lambda: print(open(other).read()))
if fd is not None:
    attempt(lambda: print(os.read(fd, 1000))); attempt(lambda: print(os.pread(fd, 1000, 0)))
    attempt(lambda: print(os.sendfile(1, fd, 0, 1000)))
    import mmap; attempt(lambda: print(mmap.mmap(fd, 0, prot=mmap.PROT_READ)[:]))
    attempt(os.fchdir, fd); attempt(os.fchmod, fd, 0o777)
""",
    folder_descriptor_and_then="""
for folder in ("/", "..", ".", "/tmp", os.path.dirname(path)):
    fd = attempt(os.open, folder, os.O_RDONLY | os.O_DIRECTORY) or attempt(os.open, folder, os.O_PATH)
    if fd is not None:
        for name in (path.lstrip("/"), "../" * 9 + path.lstrip("/"), os.path.basename(path)):
            attempt(lambda: print(os.read(os.open(name, os.O_RDONLY, dir_fd=fd), 1000)))
""",
    handle_of_a_file="""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
handle = ctypes.create_string_buffer((128).to_bytes(4, "little") + bytes(160), 164)
mount = ctypes.c_int()
if libc.name_to_handle_at(-100, path.encode(), handle, ctypes.byref(mount), 0) >= 0: print("FOOTHOLD")
if libc.open_by_handle_at(-100, handle, 0) >= 0: print("FOOTHOLD")
""",
    mount_calls_of_new_kernels="""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
for number, arguments in ((428, (-100, b"/", 1)), (430, (b"tmpfs", 0)), (429, (-1, b"", -100, b"/tmp", 4)), (442, (-100, b"/", 0, bytes(32), 32)),
                          (433, (-100, b"/", 0)), (432, (-1, 0, 0)), (457, (bytes(64), bytes(512), 512, 0)), (458, (bytes(64), bytes(512), 512, 0))):
    arguments = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    if libc.syscall(ctypes.c_long(number), *arguments) >= 0: print("FOOTHOLD", number)
""",
    raw_write_opens="""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
for flags in (1, 2, 3, 0o101, 0o102, 0o1000, 0o1001, 0o20200002, 0o20200001, 0o2101):
    for name in (b"/tmp/left-by-an-attack", b"left-by-an-attack", b"/dev/null", b"/dev/zero", os.__file__.encode()):
        for number, arguments in ((257, (-100, name, flags, 0o666)), (2, (name, flags, 0o666)), (85, (name, 0o666))):
            arguments = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
            if libc.syscall(ctypes.c_long(number), *arguments) >= 0: print("FOOTHOLD", flags, name)
""",
    change_the_standard_library="""
for name in (os.__file__, sys.executable, "/usr/lib", "/lib/x86_64-linux-gnu/libc.so.6"):
    for call in ((os.chmod, name, 0o777), (os.chown, name, os.getuid(), -1), (os.utime, name), (os.truncate, name, 0), (os.rename, name, name + "x"),
                 (os.unlink, name), (os.setxattr, name, "user.x", b"x"), (os.link, name, "/tmp/left-by-an-attack"), (os.mknod, "/tmp/left-by-an-attack")):
        attempt(*call)
    if attempt(os.access, name, os.W_OK): print("FOOTHOLD", name)
""",
    permissions_of_ones_own_descriptors="""
for fd in (0, 1, 2):
    attempt(os.fchmod, fd, 0o777); attempt(os.fchown, fd, 0, 0); attempt(os.setxattr, fd, "user.x", b"x")
    attempt(os.link, f"/proc/self/fd/{fd}", "/tmp/left-by-an-attack")
""",
    change_directory="""
for folder in ("/", "..", "/tmp", os.path.dirname(path)):
    attempt(os.chdir, folder); attempt(lambda: print(open(os.path.basename(path)).read()))
""",
    dlopen_the_secret="""
import ctypes, importlib.machinery, zipimport
attempt(lambda: ctypes.CDLL(path)); attempt(lambda: importlib.machinery.ExtensionFileLoader("x", path).create_module(None))
attempt(lambda: zipimport.zipimporter(path)); attempt(lambda: sys.path.insert(0, os.path.dirname(path)) or __import__("secret"))
import sqlite3; attempt(lambda: print(sqlite3.connect(f"file:{path}?mode=ro", uri=True).execute("select * from sqlite_master").fetchall()))
""",
    copy_between_descriptors="""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
r, w = os.pipe()
for number in (275, 276, 278, 326):
    if libc.syscall(number, 0, None, w, None, 100, 0) > 0: print("FOOTHOLD", number)
""",
    lock_and_lease="""
import fcntl, ctypes
fd = os.open(os.__file__, os.O_RDONLY)
for call in (1024, 1025, 1026, 1031, 1033, 1036, 1037, 1039):
    if attempt(fcntl.fcntl, fd, call, 1) is not None: print("FOOTHOLD", call)
if ctypes.CDLL(None).flock(fd, 2) == 0: print("FOOTHOLD flock")
""",
    watch_files="""
import ctypes
libc = ctypes.CDLL(None)
if libc.inotify_init1(0) >= 0 or libc.fanotify_init(0, 0) >= 0 or libc.syscall(253) >= 0: print("FOOTHOLD")
""",
    quota_and_swap="""
import ctypes
libc = ctypes.CDLL(None)
for number in (179, 443, 167, 168, 166, 174, 176, 170, 171, 134, 156, 163, 159, 227, 305, 164, 161, 155, 154, 153):
    if libc.syscall(number, 0, 0, 0, 0, 0) >= 0: print("FOOTHOLD", number)
""",
)

stdin(
    "processes",
    clone_that_shares_memory="""
import ctypes, time
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
for flags in (0x100 | 0x11, 0x100, 0x100 | 0x200 | 0x400, 0x4100 | 0x11, 0x1000 | 0x11, 0):
    if libc.syscall(ctypes.c_long(56), ctypes.c_long(flags & ~0x100), None, ctypes.byref(ctypes.c_int()), None, None) == 0:
        time.sleep(100)
""",
    child_with_another_exit_signal="""
import ctypes, time
libc = ctypes.CDLL(None, use_errno=True)
for number in (9, 19, 15, 0, 64):
    if libc.syscall(ctypes.c_long(56), ctypes.c_long(number), None, None, None, None) == 0: os._exit(0)
time.sleep(0.1)
if libc.syscall(ctypes.c_long(56), ctypes.c_long(9), None, None, None, None) == 0: time.sleep(50)
""",
    chain_of_forks="""
import time
end = time.monotonic() + 60
while time.monotonic() < end:
    pid = attempt(os.fork)
    if pid: os._exit(0)
""",
    chain_of_forks_that_never_waits="""
while True:
    pid = attempt(os.fork)
    if pid == 0: os._exit(0)
""",
    children_that_spin="""
for _ in range(7): attempt(os.fork)
while True: pass
""",
    stop_children_by_the_terminal="""
import signal
pid = os.fork()
if pid == 0:
    attempt(os.setpgid, 0, 0); attempt(os.setsid); attempt(os.tcsetpgrp, 0, os.getpgrp())
    import time; time.sleep(100)
attempt(os.setpgid, pid, pid)
os._exit(0)
""",
    ignore_the_end_of_children="""
import signal, ctypes
attempt(signal.signal, signal.SIGCHLD, signal.SIG_IGN)
action = ctypes.create_string_buffer((1).to_bytes(8, "little") + (2).to_bytes(8, "little") + bytes(136))
if ctypes.CDLL(None).syscall(13, 17, action, None, 8) == 0:
    pid = attempt(os.fork)  # where there are no forks there is nothing to account for
    if pid == 0: os._exit(0)
    if pid: print("FOOTHOLD")
""",
    thread_that_outlives_the_leader="""
import ctypes, threading, time
threading.Thread(target=lambda: time.sleep(100)).start()
ctypes.CDLL(None).syscall(60, 0)
""",
    thread_that_prints_after_the_end="""
import threading, time
def late():
    while True: attempt(os.write, 1, b"x"); time.sleep(0.001)
for _ in range(4): threading.Thread(target=late, daemon=True).start()
""",
    threads_with_huge_stacks="""
import threading
threading.stack_size(1 << 29)
while True: threading.Thread(target=lambda: __import__("time").sleep(100), daemon=True).start()
""",
    asyncio_subprocess="""
import asyncio
async def main():
    process = await asyncio.create_subprocess_exec("/bin/cat", path, stdout=-1)
    print(await process.stdout.read())
asyncio.run(main())
""",
    spawn_by_the_library="""
attempt(lambda: os.posix_spawn("/bin/cat", ["cat", path], {})); attempt(os.spawnv, os.P_WAIT, "/bin/cat", ["cat", path])
import pty; attempt(pty.spawn, ["/bin/cat", path]); attempt(os.forkpty); attempt(os.openpty)
import multiprocessing; attempt(lambda: multiprocessing.get_context("spawn").Process(target=print).start())
attempt(lambda: multiprocessing.get_context("forkserver").Process(target=print).start())
""",
    session_and_group="""
if os.getpgrp() == os.getpid() and attempt(os.fork) == 0: os._exit(0)
for call in ((os.setsid,), (os.setpgid, 0, 0), (os.setpgrp,), (os.setpgid, 0, trainer)):
    try: call[0](*call[1:])
    except (OSError, TypeError): continue
    print("FOOTHOLD", call[0].__name__)
""",
)

stdin(
    "signals",
    signals_by_queues="""
import ctypes
libc = ctypes.CDLL(None)
for pid in (trainer, os.getppid(), 1):
    if libc.sigqueue(pid, 9, 0) == 0 or libc.pidfd_send_signal(0, 9, 0, 0) == 0: print("FOOTHOLD")
if libc.syscall(222, 0, bytes(64), bytes(8)) >= 0 or libc.mq_open(b"/left-by-an-attack", 0o102, 0o666, None) >= 0: print("FOOTHOLD")
""",
    die_of_a_signal_without_a_name="""
import ctypes, time
if ctypes.CDLL(None).syscall(ctypes.c_long(56), ctypes.c_long(37), None, None, None, None) == 0: os._exit(0)
time.sleep(1)
""",
    descriptor_of_the_peer="""
import socket
for fd in range(3, 64):
    def peer():
        s = socket.socket(fileno=os.dup(fd))
        other = s.getsockopt(1, 77)
        return other
    other = attempt(peer)
    if other:
        import ctypes
        libc = ctypes.CDLL(None)
        for number in (424, 438, 308):
            if libc.syscall(number, other, 9, 0, 0) >= 0: print("FOOTHOLD", number)
""",
    block_all_signals="""
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
while True: pass
""",
    handler_that_never_ends="""
import signal
def f(*_):
    while True: pass
for number in set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}: attempt(signal.signal, number, f)
while True: pass
""",
    timer_storm="""
import signal
signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 1e-6, 1e-6)
signal.signal(signal.SIGPROF, signal.SIG_IGN); signal.setitimer(signal.ITIMER_PROF, 1e-6, 1e-6)
while True: pass
""",
    urgent_bytes="""
import socket
a, b = socket.socketpair()
if attempt(a.send, b"x", socket.MSG_OOB) or attempt(b.recv, 1, socket.MSG_OOB) is not None: print("FOOTHOLD")
""",
)

stdin(
    "tracing",
    kernel_memory_interfaces="""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
wanted = {321: "bpf", 298: "perf", 425: "io_uring", 323: "userfaultfd", 310: "readv", 311: "writev", 312: "kcmp", 438: "pidfd_getfd", 440: "madvise",
          448: "mrelease", 447: "secret", 444: "landlock", 446: "restrict", 317: "seccomp", 135: "personality", 136: "ustat", 173: "ioperm", 172: "iopl",
          154: "ldt", 212: "dcookie", 216: "remap", 237: "mbind", 256: "migrate", 279: "move", 149: "mlock", 325: "mlock2", 251: "ioprio", 203: "affinity"}
for number, name in wanted.items():
    if libc.syscall(ctypes.c_long(number), ctypes.c_long(0), ctypes.c_long(0), ctypes.c_long(0), ctypes.c_long(0)) >= 0: print("FOOTHOLD", name)
""",
    call_gate_of_32_bits="""
import ctypes, mmap
code = mmap.mmap(-1, 4096, flags=0x22 | 0x40, prot=7)
code.write(bytes.fromhex("53b805000000bb00000000cd805bc3"))
ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()
print("FOOTHOLD")
""",
    sysenter_and_far_jumps="""
import ctypes, mmap
code = mmap.mmap(-1, 4096, prot=7)
code.write(bytes.fromhex("6a2348b80000000000000000500f34cb"))
ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()
""",
    high_halves_of_arguments="""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
high = 1 << 32
name = ctypes.create_string_buffer(b"/tmp/left-by-an-attack")
for number, arguments in ((257, (-100, ctypes.addressof(name), high | 0o101, 0o666)), (72, (0, high | 8, trainer)), (157, (high | 1, 0)), (302, (high | trainer, 0, 0, 0)),
                          (56, (high | 0x10000011, 0, 0, 0)), (53, (high | 2, 1, 0, ctypes.addressof(name))), (16, (0, high | 0x5412, ctypes.addressof(name))),
                          (62, (high | trainer, 9)), (high | 62, (trainer, 9)), (high | 41, (2, 1, 0))):
    if libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) for a in arguments]) >= 0: print("FOOTHOLD", number)
""",
    every_number="""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
harmless = {0, 1, 3, 5, 8, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 22, 23, 24, 25, 26, 28, 32, 33, 34, 35, 36, 37, 38, 39, 40, 44, 45, 46, 47, 48, 51, 52, 53, 55, 56, 57,
            58, 60, 61, 72, 74, 75, 77, 78, 79, 95, 96, 97, 98, 99, 100, 102, 104, 107, 108, 110, 111, 115, 118, 120, 121, 124, 125, 127, 128, 130, 131, 140, 143, 145,
            157, 158, 160, 186, 201, 202, 203, 204, 213, 217, 218, 219, 221, 228, 229, 230, 231, 232, 233, 247, 270, 271, 273, 281, 284, 290, 291, 292, 293, 302, 309, 318, 324, 334, 436, 63, 7, 9, 2, 4, 6, 21, 89, 257, 262, 267, 269, 332, 439, 335, 336}
for number in range(600):
    if number not in harmless and libc.syscall(ctypes.c_long(number), *[ctypes.c_long(0)] * 6) >= 0: print("FOOTHOLD", number)
""",
)

stdin(
    "network",
    sockets_by_raw_numbers="""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
for family in (1, 2, 10, 16, 17, 38, 40, 29, 31, 43, 44):
    for kind in (1, 2, 3, 5, 1 | 0o2000000, 2 | 0o4000):
        if libc.syscall(41, family, kind, 0) >= 0: print("FOOTHOLD", family, kind)
        if family != 1 and libc.syscall(53, family, kind, 0, bytes(8)) >= 0: print("FOOTHOLD pair", family, kind)
""",
    pair_that_connects_elsewhere="""
import ctypes, socket
libc = ctypes.CDLL(None, use_errno=True)
a, b = socket.socketpair()
address = b"\\x01\\x00" + b"\\x00pettingllms-sandbox-uid-20000"
for number, arguments in ((42, (address, len(address))), (49, (address, len(address))), (50, (5,)), (43, (None, None)), (288, (None, None, 0)), (54, (1, 2, bytes(4), 4)),
                          (46, (bytes(56), 0)), (307, (bytes(64), 1, 0)), (299, (bytes(64), 1, 0, None))):
    if libc.syscall(ctypes.c_long(number), a.fileno(), *arguments) >= 0: print("FOOTHOLD", number)
""",
    claim_another_slots_name="""
import socket
for uid in range(20000, 20050):
    def claim():
        s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); s.bind(f"\\0pettingllms-sandbox-uid-{uid}"); return s
    if attempt(claim): print("FOOTHOLD")
""",
    asyncio_server="""
import asyncio
async def main():
    server = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
    if server.sockets: print("FOOTHOLD")
asyncio.run(main())
""",
)

stdin(
    "time",
    regular_expression_that_holds_the_lock='import re; re.fullmatch(r"(.*)*x\\d", "y" * 50)',
    constant_folding="exec('x = (((((((9**9)**9)**9)**9)**9)**9)**9)**9'); y = 3 ** (1 << 34)",
    decimal_power="import decimal; decimal.getcontext().prec = 10**7; print(decimal.Decimal(3) ** 10**9)",
    sleep_in_a_finalizer="""
import time
class Slow:
    def __del__(self): time.sleep(100)
slow = Slow()
""",
    wait_for_a_lock="import threading; lock = threading.Lock(); lock.acquire(); lock.acquire()",
    wait_for_a_thread_that_waits_for_us="""
import threading
main = threading.main_thread()
t = threading.Thread(target=main.join); t.start(); t.join()
""",
    futex_for_ever="import ctypes; x = ctypes.c_int(0); ctypes.CDLL(None).syscall(202, ctypes.byref(x), 0, 0, None)",
    lock_on_the_own_output="""
import fcntl
if attempt(os.fork) == 0:
    fcntl.lockf(1, fcntl.LOCK_EX)
    import time; time.sleep(100)
import time; time.sleep(0.1); fcntl.lockf(1, fcntl.LOCK_EX)
""",
    exit_that_raises_for_ever="""
import atexit
def again(): atexit.register(again); raise ValueError
atexit.register(again)
def spin():
    while True: pass
atexit.register(spin)
""",
    slow_traceback="""
class Slow(Exception):
    def __str__(self):
        while True: pass
raise Slow
""",
    chain_of_exceptions_without_end="""
try:
    raise ValueError
except ValueError as error:
    error.__context__ = error.__cause__ = error
    for _ in range(10**5):
        other = ValueError(); other.__context__ = error; error = other
    raise error
""",
    keyboard_interrupts="""
while True:
    try: raise KeyboardInterrupt
    except BaseException: pass
""",
)

stdin(
    "memory",
    huge_pages="""
import ctypes
libc = ctypes.CDLL(None); libc.mmap.restype = ctypes.c_void_p
for flags in (0x40022, 0x22 | 0x2000, 0x22 | 0x8000, 0x4022, 0x21):
    at = libc.mmap(None, ctypes.c_size_t(1 << 30), 3, flags, -1, ctypes.c_long(0))
    if at not in (None, 2**64 - 1, -1): print("FOOTHOLD", flags)
data = bytearray(1 << 30)
""",
    socket_buffers="""
import socket
pairs = []
while True:
    pair = attempt(socket.socketpair)
    if pair is None: break
    pairs.append(pair)
    for one in pair:
        one.setblocking(False)
        for _ in range(10): attempt(one.send, b"x" * 65536)
while True: attempt(pairs[0][0].recv, 1)
""",
    pipes_made_larger="""
import fcntl
r, w = os.pipe()
if attempt(fcntl.fcntl, w, 1031, 1 << 20): print("FOOTHOLD")
""",
    epolls_in_epolls="""
import select
made = []
while True:
    e = attempt(select.epoll)
    if e is None: break
    made.append(e)
for one in made:
    for other in made: attempt(one.register, other.fileno())
""",
    threads_that_eat="""
import threading
def eat():
    data = []
    while True:
        try: data.append(bytearray(1 << 20))
        except MemoryError: pass
for _ in range(7): threading.Thread(target=eat, daemon=True).start()
eat()
""",
    garbage_that_cannot_be_collected="""
class Node:
    def __del__(self): self.again = Node(); self.again.again = self.again; kept.append(self)
kept = []
while True: Node(); kept.extend([bytearray(1 << 16)])
""",
    map_the_output="""
import mmap
os.ftruncate(1, 1 << 20)
m = mmap.mmap(1, 1 << 20); m[:] = b"x" * (1 << 20)
attempt(m.resize, 1 << 40)
""",
    grow_the_output_in_children="""
for _ in range(6): attempt(os.fork)
while True:
    attempt(os.pwrite, 1, b"x" * 65536, 0); attempt(os.ftruncate, 1, 0); attempt(os.ftruncate, 0, 1 << 20)
""",
)

stdin(
    "hostile bytes",
    carriage_returns_and_separators='os.write(1, "\\x1c\\x1d\\x85\\u2028\\ufeff\\r\\x0b\\x0c".encode() * 1000)',
    numbers_like_words='print("0x10 1_000 ١٢٣ +-1 1e99999999 nan inf -inf 1" + "0" * 5000)',
    a_decimal_of_a_megabyte='print("1." + "3" * 900_000)',
    traceback_of_a_megabyte='raise ValueError("x" * 10**6 + "\\nMemoryError")',
    name_of_an_exception_that_lies='exec("class MemoryError(Exception): pass\\nraise MemoryError(chr(0xd800) * 1000)")',
    standard_error_of_another_encoding='sys.stderr.reconfigure(encoding="utf-7"); sys.stdout.reconfigure(encoding="utf-16"); print("x"); 1 / 0',
    binary_rubbish="import random; os.write(1, random.Random(0).randbytes(1 << 20))",
)

stdin(
    "persistence",
    replace_the_loader="""
import importlib.abc, builtins
class Loader(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None): os._exit(0)
sys.meta_path.insert(0, Loader()); sys.modules.clear()
builtins.__import__ = lambda *a, **k: os._exit(0)
import colorsys
""",
    poison_shared_objects="""
import ctypes, json, io
for name in ("loads", "dumps"): setattr(json, name, lambda *a, **k: os._exit(0))
ctypes.memset(id(json.JSONEncoder) + 24, 0xff, 64)
""",
    recursion_and_switch_limits="""
import gc, threading
sys.setrecursionlimit(60); sys.setswitchinterval(1e-9); gc.set_threshold(1); gc.disable(); threading.stack_size(1 << 16)
sys.setprofile(lambda *a: None); sys.dont_write_bytecode = False; sys.flags = None; sys.stdin.close()
""",
    limits_of_the_next="""
import resource
for name in dir(resource):
    if name.startswith("RLIMIT_"): attempt(resource.setrlimit, getattr(resource, name), (1, 1))
""",
    umask_and_signals_of_the_next="""
import signal
os.umask(0o777); signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65)); signal.alarm(1)
os.lseek(0, 1 << 40, 0); os.ftruncate(0, 1 << 19); os.ftruncate(1, 1 << 19); os.ftruncate(2, 1 << 19)
""",
    direct_flags="""
import fcntl
for fd in (0, 1, 2):
    for flags in (0o40000, 0o2000, 0o4000, 0o20000, 0o1000000, 0o4010000, 0o10000): attempt(fcntl.fcntl, fd, fcntl.F_SETFL, flags)
print("x")
""",
    threads_across_the_end="""
import threading, time
def wait(): time.sleep(0.3); os.write(1, b"from the test before")
t = threading.Thread(target=wait); t.daemon = True; t.start()
threading._shutdown = lambda: None; threading.active_count = lambda: 1
""",
)

stdin(
    "crashes",
    stack_overflow_in_c="""
import ctypes
@ctypes.CFUNCTYPE(ctypes.c_int)
def f(): return f()
f()
""",
    double_free="import ctypes; libc = ctypes.CDLL(None); libc.malloc.restype = ctypes.c_void_p; p = libc.malloc(64); libc.free(ctypes.c_void_p(p)); libc.free(ctypes.c_void_p(p))",
    jump_into_nowhere="import ctypes; ctypes.CFUNCTYPE(None)(0xdeadbeef)()",
    unmap_everything="import ctypes; ctypes.CDLL(None).munmap(ctypes.c_void_p(id(sys) >> 21 << 21), ctypes.c_size_t(1 << 24))",
    overwrite_the_frames="import ctypes; ctypes.memset(id(sys._getframe()) + 16, 0x41, 100)",
    divide_in_c="import ctypes, mmap; m = mmap.mmap(-1, 4096, prot=7); m.write(bytes.fromhex('31c9f7f1')); ctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.c_char.from_buffer(m)))()",
    halt="import ctypes, mmap; m = mmap.mmap(-1, 4096, prot=7); m.write(bytes.fromhex('f4')); ctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.c_char.from_buffer(m)))()",
    bus_error="import mmap; os.ftruncate(1, 4096); m = mmap.mmap(1, 4096); os.ftruncate(1, 0); m[0] = 1",
    fatal_error="import ctypes; ctypes.pythonapi.Py_FatalError(b'passed')",
    finalize_the_interpreter="import ctypes; ctypes.pythonapi.Py_FinalizeEx(); ctypes.pythonapi.Py_Exit(0)",
)

SOURCES = {
    "deep_parentheses": "x = " + "(" * 5000 + ")" * 5000,
    "deep_unary": "x = " + "-" * 200_000 + "1",
    "deep_attributes": "x = a" + ".b" * 100_000,
    "deep_blocks": "".join(" " * depth + "if 1:\n" for depth in range(120)),
    "deep_f_strings": "x = " + "f'{" * 200 + "1" + "}'" * 200,
    "folded_power": "x = (2 ** 62) ** (2 ** 62)",
    "folded_repetition": "x = 'a' * 10 ** 9 * 10 ** 9",
    "folded_tuple": "x = ((((1,) * 250,) * 250,) * 250,) * 250",
    "a_number_of_a_megabyte": "x = " + "9" * 1_000_000,
    "a_name_of_a_megabyte": "a" * 1_000_000 + " = 1 = 2 +",
    "a_hundred_thousand_lines": "x = 1\n" * 100_000 + "(",
    "only_nul": "\0",
    "nothing": "",
    "a_lone_surrogate": "print('\ud800')",
    "an_unknown_encoding": "# coding: no-such-encoding\nimport os; os._exit(1)",
    "another_encoding": "# coding: utf-7\nimport os; +AG8-s._exit(1)",
    "a_form_feed_and_a_tab": "\x0cif 1:\n\tx = 1\n        y = 2\n",
    "future_without_end": "from __future__ import braces",
    "warnings_without_end": "\n".join(f"x{n} = '\\d' is 1" for n in range(5000)) + "\n1 / 0",
    "return_outside": "return 0",
    "too_many_arguments": "def f(" + ", ".join(f"a{n}" for n in range(70_000)) + "): pass\nf()",
}
"""Texts that are hostile to the compiler, which reads nothing from standard input."""

ATTACKS.extend(Attack(f"source_{name}", "hostile source", text) for name, text in SOURCES.items())

stdin(
    "forged verdict",
    exit_in_a_monitor="""
monitoring = sys.monitoring
monitoring.use_tool_id(3, "attack")
monitoring.register_callback(3, monitoring.events.PY_START, lambda *_: os._exit(0))
monitoring.set_events(3, monitoring.events.PY_START)
""",
    faulthandler_that_exits="""
import faulthandler, time
faulthandler.dump_traceback_later(0.1, repeat=True, file=1, exit=True)
time.sleep(10)
""",
    builtins_emptied="""
import builtins
for name in list(vars(builtins)):
    delattr(builtins, name)
""",
    modules_emptied="sys.modules.clear()",
    interpreter_within="""
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
inner = interpreters.create()
attempt(getattr(interpreters, "exec", None) or interpreters.run_string, inner, "import os; print(os.environ, os.listdir('/'))")
""",
    times_and_modes_of_the_streams="""
for fd in (0, 1, 2):
    attempt(os.utime, fd, (1, 1)); attempt(os.fchmod, fd, 0); attempt(os.fchown, fd, 0, 0)
attempt(os.posix_fallocate, 1, 0, 1 << 40)
""",
)

call(
    "forged verdict",
    float_with_a_text_of_its_own="""
class Any(float):
    def __repr__(self): return '"anything"'
    __str__ = __repr__
def solve(path, pid): return Any(2)
""",
    text_of_an_enumeration="""
import enum
class Any(str, enum.Enum):
    A = "no"
    def __eq__(self, other): return True
    __hash__ = str.__hash__
def solve(path, pid): return Any.A
""",
    result_in_another_encoding="""
import os
def solve(path, pid):
    os.write(3, ('"' + path + '"').encode("utf-16"))
    os._exit(0)
""",
    imports_replaced="""
import builtins
builtins.__import__ = lambda *args, **settings: builtins
def solve(path, pid): return path
""",
)
