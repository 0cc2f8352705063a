/* Native programs that try to get a secret or a foothold that they have no right to: `an-attack NAME PATH PID`.
 *
 * PATH is a file with the secret, which everybody on the machine may read; PID is the trainer. Whoever gets hold of the
 * secret prints it; whoever gets anything else that a command must not have prints FOOTHOLD. An attack that cannot go
 * on says nothing. Attacks on time, memory and files go on until they are stopped, or print FOOTHOLD when they have
 * got far more than they were given.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

extern char **environ;
static const char *path;
static pid_t trainer;
static char *self;
static char page[1 << 16];

static struct { const char *name; void (*run)(void); } attacks[256];
static int num_attacks;
#define ATTACK(label)                                                                                                  \
    static void label(void);                                                                                           \
    __attribute__((constructor)) static void add_##label(void)                                                        \
    {                                                                                                                  \
        attacks[num_attacks].name = #label;                                                                            \
        attacks[num_attacks++].run = label;                                                                            \
    }                                                                                                                  \
    static void label(void)

static void foothold(const char *what) { printf("FOOTHOLD %s\n", what); fflush(stdout); }
#define MUST_FAIL(call) do { if ((long)(call) >= 0) foothold(#call); } while (0)
#define RAW(name, ...) syscall(SYS_##name, ##__VA_ARGS__)

static void show(int fd)
{
    char data[4096];
    ssize_t size;
    if (fd < 0) return;
    size = read(fd, data, sizeof data);
    if (size > 0) { fwrite(data, 1, size, stdout); fflush(stdout); }
    close(fd);
}
static void must_not_open(const char *name)
{
    int fd = open(name, O_RDONLY | O_NONBLOCK);
    if (fd >= 0) { foothold(name); show(fd); }
}
static void pin(void) { for (;;) pause(); }

/* ---- files that it may not read */
ATTACK(read_the_secret) { show(open(path, O_RDONLY)); }
ATTACK(read_the_secret_by_openat2)
{
    unsigned long long how[3] = {0, 0, 0};
    show(RAW(openat2, AT_FDCWD, path, how, sizeof how));
}
ATTACK(read_the_secret_by_handle)
{
    struct { struct file_handle handle; char space[128]; } found;
    int mount_id;
    found.handle.handle_bytes = 128;
    if (name_to_handle_at(AT_FDCWD, path, &found.handle, &mount_id, 0) == 0)
        show(open_by_handle_at(AT_FDCWD, &found.handle, O_RDONLY));
}
ATTACK(read_the_secret_by_path_descriptor)
{
    char name[64];
    int fd = open(path, O_PATH);
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    show(open(name, O_RDONLY));
    show(openat(fd, "", O_RDONLY));
    if (fd >= 0) show(dup(fd));
}
ATTACK(read_the_secret_by_mapping)
{
    int fd = open(path, O_RDONLY);
    char *data = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data != MAP_FAILED) puts(data);
}
ATTACK(read_the_secret_by_sendfile) { sendfile(1, open(path, O_RDONLY), NULL, 4096); }
ATTACK(read_the_secret_by_a_symbolic_link) { MUST_FAIL(symlink(path, "link")); show(open("link", O_RDONLY)); }
ATTACK(read_the_secret_by_a_hard_link)
{
    MUST_FAIL(link(path, "link"));
    MUST_FAIL(linkat(AT_FDCWD, path, AT_FDCWD, "link2", AT_SYMLINK_FOLLOW));
    show(open("link", O_RDONLY));
}
ATTACK(read_the_secret_by_renaming_it) { MUST_FAIL(rename(path, "mine")); show(open("mine", O_RDONLY)); }
ATTACK(read_the_secret_by_executing_it)
{
    if (fork() == 0) { char *argv[] = {(char *)path, NULL}; execv(path, argv); perror("exec"); _exit(1); }
    wait(NULL);
}
ATTACK(read_beside_the_secret)
{
    char name[4096];
    snprintf(name, sizeof name, "%s", path);
    *strrchr(name, '/') = 0;
    DIR *folder = opendir(name);
    for (struct dirent *each; folder && (each = readdir(folder));) show(openat(dirfd(folder), each->d_name, O_RDONLY));
    MUST_FAIL(chdir(name) == 0 ? open("secret", O_RDONLY) : -1);
}
ATTACK(read_accounts) { must_not_open("/etc/passwd"); must_not_open("/etc/shadow"); must_not_open("/etc/hosts"); }
ATTACK(read_homes) { must_not_open("/root"); must_not_open("/home"); must_not_open("/root/.bashrc"); }
ATTACK(read_processes)
{
    const char *names[] = {"environ", "mem", "maps", "cmdline", "fd", "root", "task"};
    char name[64];
    for (size_t at = 0; at < sizeof names / sizeof *names; at++) {
        pid_t pids[] = {1, trainer, getpid(), getppid()};
        for (int which = 0; which < 4; which++) {
            snprintf(name, sizeof name, "/proc/%d/%s", pids[which], names[at]);
            must_not_open(name);
        }
    }
    must_not_open("/proc/self/environ");
    must_not_open("/proc");
}
ATTACK(read_the_trainers_root)
{
    char name[4200];
    snprintf(name, sizeof name, "/proc/%d/root%s", trainer, path);
    show(open(name, O_RDONLY));
    snprintf(name, sizeof name, "/proc/%d/cwd", trainer);
    must_not_open(name);
}
ATTACK(read_the_kernel)
{
    must_not_open("/sys/kernel"); must_not_open("/sys/fs/cgroup"); must_not_open("/proc/kcore");
    must_not_open("/proc/kallsyms"); must_not_open("/dev/kmsg"); must_not_open("/boot");
}
ATTACK(read_devices)
{
    must_not_open("/dev/mem"); must_not_open("/dev/kmem"); must_not_open("/dev/sda"); must_not_open("/dev/vda");
    must_not_open("/dev/tty"); must_not_open("/dev/fuse"); must_not_open("/dev/kvm"); must_not_open("/dev/ptmx");
}
ATTACK(read_by_leaving_the_root)
{
    int fd = open(".", O_RDONLY);
    MUST_FAIL(chroot("."));
    fchdir(fd);
    for (int at = 0; at < 64; at++) if (chdir("..")) break;
    show(open(path + 1, O_RDONLY));
}
ATTACK(read_the_environment) { for (char **each = environ; *each; each++) puts(*each); }
ATTACK(read_inherited_descriptors)
{
    for (int fd = 3; fd < 65536; fd++) if (fcntl(fd, F_GETFD) >= 0) { foothold("a descriptor"); show(fd); }
}
ATTACK(read_the_memory_of_others)
{
    char data[4096];
    struct iovec ours = {data, sizeof data}, theirs = {(void *)0x400000, sizeof data};
    pid_t pids[] = {1, trainer, getppid()};
    for (int which = 0; which < 3; which++) {
        MUST_FAIL(process_vm_readv(pids[which], &ours, 1, &theirs, 1, 0));
        MUST_FAIL(process_vm_writev(pids[which], &ours, 1, &theirs, 1, 0));
    }
}
ATTACK(read_old_memory)
{
    char *data = mmap(NULL, 1 << 26, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *stack = alloca(1 << 20);
    for (size_t at = 0; data != MAP_FAILED && at < 1 << 26; at += 64) if (data[at]) foothold("memory of others");
    for (size_t at = 0; at + 7 < 1 << 20; at++) if (!memcmp(stack + at, "canary-", 7)) puts(stack + at);
}

/* ---- files that it may not change */
ATTACK(write_the_secret)
{
    MUST_FAIL(open(path, O_WRONLY));
    MUST_FAIL(open(path, O_RDWR | O_APPEND));
    MUST_FAIL(creat(path, 0600));
}
ATTACK(truncate_the_secret)
{
    MUST_FAIL(truncate(path, 0));
    MUST_FAIL(open(path, O_RDONLY | O_TRUNC));
    MUST_FAIL(open(path, 3 | O_TRUNC));
}
ATTACK(change_who_may_read_the_secret)
{
    struct timespec times[2] = {{0, 0}, {0, 0}};
    MUST_FAIL(chmod(path, 0777));
    MUST_FAIL(fchmodat(AT_FDCWD, path, 0777, 0));
    MUST_FAIL(chown(path, getuid(), getgid()));
    MUST_FAIL(utimensat(AT_FDCWD, path, times, 0));
    MUST_FAIL(setxattr(path, "user.x", "x", 1, 0));
}
ATTACK(remove_the_secret)
{
    MUST_FAIL(unlink(path));
    open("mine", O_CREAT | O_WRONLY, 0600);
    MUST_FAIL(rename("mine", path));
    MUST_FAIL(RAW(renameat2, AT_FDCWD, "mine", AT_FDCWD, path, 2));
}
static const char *folders[] = {"/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/", "/usr/lib", "/run", "/etc", ".."};
#define FOR_FOLDERS for (size_t at = 0; at < sizeof folders / sizeof *folders; at++)
ATTACK(make_files_elsewhere)
{
    char name[64];
    FOR_FOLDERS { snprintf(name, sizeof name, "%s/an-attack", folders[at]); MUST_FAIL(open(name, O_CREAT | O_RDWR, 0777)); }
}
ATTACK(make_folders_elsewhere)
{
    char name[64];
    FOR_FOLDERS { snprintf(name, sizeof name, "%s/an-attack", folders[at]); MUST_FAIL(mkdir(name, 0777)); }
}
ATTACK(move_files_elsewhere)
{
    char name[64];
    close(open("file", O_CREAT | O_WRONLY, 0600));
    FOR_FOLDERS { snprintf(name, sizeof name, "%s/an-attack", folders[at]); MUST_FAIL(rename("file", name)); }
}
ATTACK(make_nameless_files_elsewhere) { FOR_FOLDERS MUST_FAIL(open(folders[at], O_TMPFILE | O_RDWR, 0600)); }
ATTACK(write_the_libraries)
{
    MUST_FAIL(open("/lib/x86_64-linux-gnu/libc.so.6", O_WRONLY));
    MUST_FAIL(open("/lib64/ld-linux-x86-64.so.2", O_WRONLY));
    MUST_FAIL(unlink("/lib/x86_64-linux-gnu/libc.so.6"));
}
ATTACK(make_devices)
{
    MUST_FAIL(mknod("memory", S_IFCHR | 0666, 1 << 8 | 1));
    MUST_FAIL(mknod("disk", S_IFBLK | 0666, 254 << 8));
    MUST_FAIL(mkfifo("fifo", 0666));
    MUST_FAIL(mknod("socket", S_IFSOCK | 0666, 0));
}
ATTACK(remove_its_own_directory)
{
    char name[4096];
    if (!getcwd(name, sizeof name)) return;
    MUST_FAIL(rmdir(name));
    MUST_FAIL(rename(name, "/tmp/an-attack"));
    MUST_FAIL(chmod(".", 0));
}
ATTACK(leave_something_for_the_next)
{
    if (access("left", F_OK) == 0) foothold("a file of the command before");
    close(open("left", O_CREAT | O_WRONLY, 0));
    mkdir("closed", 0700);
    close(open("closed/file", O_CREAT | O_WRONLY, 0));
    mkdir("closed/none", 0);
    mkdir("\xff\n", 0);
    mkdir("-rf", 0300);
    close(open("-rf/x", O_CREAT | O_WRONLY, 0));
}
ATTACK(make_a_root_of_its_own)
{
    MUST_FAIL(mount("none", ".", "tmpfs", 0, NULL));
    MUST_FAIL(mount("/", ".", NULL, MS_BIND | MS_REC, NULL));
    MUST_FAIL(mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND, NULL));
    MUST_FAIL(umount2("/scratch", MNT_DETACH));
    MUST_FAIL(RAW(pivot_root, ".", "."));
    MUST_FAIL(RAW(open_tree, AT_FDCWD, "/", 1));
    MUST_FAIL(RAW(fsopen, "tmpfs", 0));
    MUST_FAIL(RAW(move_mount, AT_FDCWD, ".", AT_FDCWD, "/", 0));
    MUST_FAIL(RAW(mount_setattr, AT_FDCWD, "/", 0, NULL, 0));
}

/* ---- programs that it may not execute */
static void must_not_run(char *const argv[])
{
    if (fork() == 0) { execv(argv[0], argv); _exit(1); }
    wait(NULL);
}
ATTACK(execute_a_shell)
{
    char *shell[] = {"/bin/sh", "-c", "echo FOOTHOLD", NULL};
    must_not_run(shell);
    if (system("echo FOOTHOLD")) errno = 0;
    FILE *pipe = popen("echo FOOTHOLD", "r");
    char line[64];
    if (pipe && fgets(line, sizeof line, pipe)) puts(line);
}
ATTACK(execute_by_the_loader)
{
    char *loader[] = {"/lib64/ld-linux-x86-64.so.2", "/bin/sh", "-c", "echo FOOTHOLD", NULL};
    must_not_run(loader);
}
ATTACK(execute_by_a_first_line)
{
    int fd = open("script", O_CREAT | O_WRONLY, 0700);
    dprintf(fd, "#!/bin/sh\necho FOOTHOLD\n");
    close(fd);
    char *script[] = {"./script", NULL};
    must_not_run(script);
}
ATTACK(execute_privileged_programs)
{
    char *names[] = {"/bin/su", "/usr/bin/sudo", "/bin/mount", "/usr/bin/passwd", "/usr/bin/newgrp"};
    for (int at = 0; at < 5; at++) MUST_FAIL(access(names[at], X_OK) ? -1 : open(names[at], O_RDONLY));
}
ATTACK(execute_from_memory)
{
    MUST_FAIL(RAW(memfd_create, "x", 0));
    MUST_FAIL(RAW(memfd_secret, 0));
    MUST_FAIL(RAW(execveat, open(self, O_RDONLY), "", NULL, NULL, AT_EMPTY_PATH));
}

/* ---- rights */
ATTACK(become_another_user)
{
    MUST_FAIL(setuid(0)); MUST_FAIL(setgid(0)); MUST_FAIL(setresuid(0, 0, 0)); MUST_FAIL(setfsuid(0) == 0 ? 0 : -1);
    gid_t none = 0;
    MUST_FAIL(RAW(setgroups, 1, &none));
}
ATTACK(have_capabilities)
{
    unsigned header[2] = {0x20080522, 0}, data[6] = {0}, all[6] = {~0u, ~0u, ~0u, ~0u, ~0u, ~0u};
    RAW(capget, header, data);
    if (data[0] | data[1] | data[3] | data[4]) foothold("capabilities");
    MUST_FAIL(RAW(capset, header, all));
    MUST_FAIL(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, 21, 0, 0));
}
ATTACK(leave_namespaces)
{
    MUST_FAIL(unshare(CLONE_NEWUSER)); MUST_FAIL(unshare(CLONE_NEWNS)); MUST_FAIL(unshare(CLONE_NEWPID));
    MUST_FAIL(setns(open("/proc/1/ns/mnt", O_RDONLY), 0));
    MUST_FAIL(RAW(clone, CLONE_NEWUSER | SIGCHLD, NULL, NULL, NULL, NULL));
    MUST_FAIL(RAW(clone3, NULL, 0));
    MUST_FAIL(RAW(clone, CLONE_PARENT | SIGCHLD, NULL, NULL, NULL, NULL));
}
ATTACK(weaken_the_filter)
{
    MUST_FAIL(RAW(seccomp, 1, 0, NULL));
    MUST_FAIL(prctl(PR_SET_SECCOMP, 2, NULL));
    MUST_FAIL(prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0));
    MUST_FAIL(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0));
    MUST_FAIL(prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0));
    MUST_FAIL(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0));
    MUST_FAIL(prctl(PR_SET_PTRACER, -1, 0, 0, 0));
}
ATTACK(use_other_kernel_interfaces)
{
#ifdef __x86_64__
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(0x40000000 | 39) : "rcx", "r11", "memory");
    if (result > 0) foothold("x32");
    if (fork() == 0) {
        __asm__ volatile("int $0x80" : "=a"(result) : "a"(20) : "memory");
        foothold("int 0x80");
        _exit(0);
    }
    wait(NULL);
#endif
}
ATTACK(raise_its_limits)
{
    int limits[] = {RLIMIT_AS, RLIMIT_CPU, RLIMIT_FSIZE, RLIMIT_CORE, RLIMIT_NOFILE, RLIMIT_MEMLOCK, RLIMIT_NICE};
    struct rlimit most = {RLIM_INFINITY, RLIM_INFINITY}, now;
    for (size_t at = 0; at < sizeof limits / sizeof *limits; at++) {
        MUST_FAIL(setrlimit(limits[at], &most));
        getrlimit(limits[at], &now);
        now.rlim_cur = now.rlim_max + 1;
        MUST_FAIL(setrlimit(limits[at], &now));
    }
    MUST_FAIL(prlimit(getppid(), RLIMIT_AS, &most, NULL));
    MUST_FAIL(prlimit(trainer, RLIMIT_CPU, NULL, &now));
}

/* ---- other processes */
ATTACK(kill_others)
{
    pid_t pids[] = {getppid(), 1, trainer, -1, 0};
    for (int at = 0; at < 5; at++) {
        MUST_FAIL(kill(pids[at], SIGKILL));
        MUST_FAIL(RAW(tkill, pids[at], SIGKILL));
        MUST_FAIL(RAW(tgkill, pids[at], pids[at], SIGKILL));
        MUST_FAIL(RAW(pidfd_open, pids[at], 0));
    }
    siginfo_t info = {0};
    MUST_FAIL(RAW(rt_sigqueueinfo, getppid(), SIGTERM, &info));
    MUST_FAIL(fcntl(0, F_SETOWN, getppid()));
    MUST_FAIL(fcntl(0, F_SETSIG, SIGKILL));
}
ATTACK(trace_others)
{
    MUST_FAIL(ptrace(PTRACE_ATTACH, getppid(), 0, 0)); MUST_FAIL(ptrace(PTRACE_SEIZE, trainer, 0, 0));
    MUST_FAIL(ptrace(PTRACE_ATTACH, 1, 0, 0)); MUST_FAIL(ptrace(PTRACE_TRACEME, 0, 0, 0));
    MUST_FAIL(RAW(kcmp, getpid(), getppid(), 0, 0, 0));
}
ATTACK(slow_others)
{
    cpu_set_t none;
    CPU_ZERO(&none);
    MUST_FAIL(setpriority(PRIO_PROCESS, getppid(), 19));
    MUST_FAIL(setpriority(PRIO_PROCESS, 0, -20));
    MUST_FAIL(sched_setaffinity(getppid(), sizeof none, &none));
    struct sched_param first = {99};
    MUST_FAIL(sched_setscheduler(0, SCHED_FIFO, &first));
    MUST_FAIL(RAW(ioprio_set, 1, getppid(), 0));
}
ATTACK(outlive_as_a_daemon)
{
    if (fork() == 0) { setsid(); if (fork() == 0) { setpgid(0, 0); close(0); close(1); close(2); pin(); } }
}
ATTACK(outlive_deaf_to_signals)
{
    for (int number = 1; number < 65; number++) signal(number, SIG_IGN);
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    if (fork() == 0) pin();
}
ATTACK(outlive_by_threads)
{
    pthread_t thread;
    pthread_create(&thread, NULL, (void *(*)(void *))pin, NULL);
    pthread_exit(NULL);
}
ATTACK(outlive_in_another_group) { MUST_FAIL(setsid()); MUST_FAIL(setpgid(0, 0)); if (fork() == 0) { MUST_FAIL(setpgid(0, 0)); pin(); } }
ATTACK(outlive_by_vfork) { if (vfork() == 0) { char *again[] = {self, "wait_for_ever", (char *)path, "1", NULL}; execv(self, again); _exit(0); } }
ATTACK(outlive_without_a_signal_at_its_end) { if (RAW(clone, 0, NULL, NULL, NULL, NULL) == 0) pin(); }
ATTACK(wait_for_ever) { pin(); }

/* ---- network and other ways to talk */
ATTACK(open_sockets)
{
    int families[] = {AF_UNIX, AF_INET, AF_INET6, AF_NETLINK, AF_PACKET, 38 /* ALG */, 40 /* VSOCK */, 31, 29, 21, 9};
    for (size_t at = 0; at < sizeof families / sizeof *families; at++) {
        MUST_FAIL(socket(families[at], SOCK_STREAM, 0));
        MUST_FAIL(socket(families[at], SOCK_DGRAM, 0));
        MUST_FAIL(socket(families[at], SOCK_RAW, 0));
    }
}
ATTACK(send_to_sockets)
{
    int pair[2] = {-1, -1};
    struct sockaddr_un abstract = {AF_UNIX, "\0pettingllms-sandbox-uid-20000"};
    MUST_FAIL(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) return;
    MUST_FAIL(sendto(pair[0], "x", 1, 0, (struct sockaddr *)&abstract, sizeof abstract));
    MUST_FAIL(connect(pair[0], (struct sockaddr *)&abstract, sizeof abstract));
    MUST_FAIL(bind(pair[0], (struct sockaddr *)&abstract, sizeof abstract));
    struct msghdr message = {0};
    MUST_FAIL(sendmsg(pair[0], &message, 0));
}
ATTACK(share_memory_by_system_v)
{
    MUST_FAIL(RAW(shmget, 4711, 4096, 01666)); MUST_FAIL(RAW(semget, 4711, 1, 01666)); MUST_FAIL(RAW(msgget, 4711, 01666));
    for (int id = 0; id < 64; id++) MUST_FAIL(RAW(shmat, id, NULL, 0));
}
ATTACK(leave_message_queues) { MUST_FAIL(RAW(mq_open, "an-attack", O_CREAT | O_RDWR, 0666, NULL)); MUST_FAIL(RAW(mq_unlink, "x")); }
ATTACK(keep_keys) { MUST_FAIL(RAW(add_key, "user", "an-attack", "x", 1, -3)); MUST_FAIL(RAW(keyctl, 0, -3, 1)); MUST_FAIL(RAW(request_key, "user", "x", NULL, 0)); }
ATTACK(watch_files)
{
    int fd = RAW(inotify_init1, 0);
    MUST_FAIL(fd);
    MUST_FAIL(RAW(fanotify_init, 0, 0));
    MUST_FAIL(fcntl(0, 1026 /* F_NOTIFY */, 1));
    MUST_FAIL(fcntl(0, 1024 /* F_SETLEASE */, 0));
}
ATTACK(type_on_the_terminal) { for (int fd = 0; fd < 3; fd++) { MUST_FAIL(ioctl(fd, TIOCSTI, "x")); MUST_FAIL(ioctl(fd, TIOCSCTTY, 1)); MUST_FAIL(ioctl(fd, TIOCNOTTY)); } }

/* ---- the kernel */
ATTACK(use_io_uring) { char parameters[120] = {0}; MUST_FAIL(RAW(io_uring_setup, 4, parameters)); MUST_FAIL(RAW(io_setup, 4, parameters)); }
ATTACK(use_bpf) { char attributes[120] = {0}; MUST_FAIL(RAW(bpf, 0, attributes, sizeof attributes)); MUST_FAIL(RAW(bpf, 5, attributes, sizeof attributes)); }
ATTACK(use_perf_and_userfaultfd) { char attributes[120] = {0}; MUST_FAIL(RAW(perf_event_open, attributes, 0, -1, -1, 0)); MUST_FAIL(RAW(userfaultfd, 0)); }
ATTACK(load_modules) { MUST_FAIL(RAW(init_module, "", 0, "")); MUST_FAIL(RAW(finit_module, 0, "", 0)); MUST_FAIL(RAW(kexec_load, 0, 0, NULL, 0)); MUST_FAIL(RAW(delete_module, "x", 0)); }
ATTACK(change_the_machine)
{
    MUST_FAIL(sethostname("an-attack", 9)); MUST_FAIL(RAW(setdomainname, "an-attack", 9)); MUST_FAIL(RAW(syslog, 3, NULL, 0));
    MUST_FAIL(RAW(reboot, 0xfee1dead, 672274793, 0, NULL)); MUST_FAIL(RAW(swapon, "x", 0)); MUST_FAIL(RAW(acct, NULL));
    MUST_FAIL(RAW(quotactl, 0, NULL, 0, NULL)); MUST_FAIL(RAW(vhangup)); MUST_FAIL(RAW(sync));
}
ATTACK(set_the_clock)
{
    struct timeval now = {1, 0};
    struct timespec when = {1, 0};
    MUST_FAIL(settimeofday(&now, NULL)); MUST_FAIL(clock_settime(CLOCK_REALTIME, &when));
    char adjust[256] = {1};
    MUST_FAIL(RAW(adjtimex, adjust));
}

/* ---- time */
ATTACK(burn_time) { for (volatile long at = 0;; at++) {} }
ATTACK(burn_time_deaf_to_its_limit) { signal(SIGXCPU, SIG_IGN); for (volatile long at = 0;; at++) {} }
ATTACK(burn_time_in_children) { while (fork() >= 0) {} for (volatile long at = 0;; at++) {} }
ATTACK(burn_time_in_uncounted_children)
{
    if (signal(SIGCHLD, SIG_IGN) != SIG_ERR) foothold("ignoring children");
    struct sigaction action = {.sa_handler = SIG_DFL, .sa_flags = SA_NOCLDWAIT};
    MUST_FAIL(sigaction(SIGCHLD, &action, NULL));
}
ATTACK(sleep_for_long) { sleep(60); }
ATTACK(wait_for_input) { int ends[2]; char byte; if (pipe(ends) == 0 && read(ends[0], &byte, 1) < 0) return; }

/* ---- processes and memory */
ATTACK(fork_bomb) { for (;;) fork(); }
ATTACK(vfork_bomb) { for (;;) { if (vfork() == 0) { char *again[] = {self, "vfork_bomb", (char *)path, "1", NULL}; execv(self, again); _exit(0); } } }
ATTACK(fork_and_exit_bomb) { for (;;) if (fork() == 0) { if (fork() == 0) pin(); _exit(0); } }
ATTACK(thread_bomb)
{
    pthread_t thread;
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 16384);
    for (long number = 0;; number++) {
        if (pthread_create(&thread, &small, (void *(*)(void *))pin, NULL)) pin();
        if (number > 20000) foothold("threads");
    }
}
static void eat(size_t most)
{
    for (size_t held = 0; held < most; held += 1 << 20) {
        char *data = malloc(1 << 20);
        if (!data) pin();
        memset(data, 1, 1 << 20);
    }
}
ATTACK(take_memory) { eat((size_t)4 << 30); foothold("memory"); }
static void hold_together(void *(*take)(size_t))
{
    enum { children = 6, each = 200 << 20 };
    volatile char *full = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int at = 0; at < children; at++)
        if (fork() == 0) { if (take(each)) full[at] = 1; pin(); }
    for (;;) {
        int number = 0;
        for (int at = 0; at < children; at++) number += full[at];
        if (number == children && waitpid(-1, NULL, WNOHANG) == 0) foothold("memory of all children");
        usleep(1000);
    }
}
static void *take_own(size_t size) { eat(size); return page; }
static void *take_shared(size_t size)
{
    char *data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return data == MAP_FAILED ? NULL : memset(data, 1, size);
}
ATTACK(take_memory_in_children) { hold_together(take_own); }
ATTACK(take_shared_memory) { hold_together(take_shared); }
ATTACK(take_memory_in_pipes) { int ends[2]; char data[65536] = {1}; while (pipe(ends) == 0) if (write(ends[1], data, sizeof data) < 0) break; pin(); }
ATTACK(take_descriptors) { int number = 0; while (dup(0) >= 0) if (++number > 5000) { foothold("descriptors"); return; } }
ATTACK(lock_memory) { char *data = malloc(1 << 20); MUST_FAIL(mlock(data, 1 << 20)); MUST_FAIL(mlockall(MCL_FUTURE)); }
static int deep(int depth) { volatile char room[4096]; room[0] = depth; return depth ? deep(depth - 1) + room[0] : 0; }
ATTACK(overflow_the_stack) { printf("%d\n", deep(1 << 28)); }
ATTACK(dump_core) { struct rlimit most = {1 << 30, 1 << 30}; MUST_FAIL(setrlimit(RLIMIT_CORE, &most)); *(volatile int *)8 = 1; }

/* ---- output and files */
#define ENOUGH ((long)512 << 20)
ATTACK(flood_output) { for (;;) if (write(1, page, sizeof page) < 0) return; }
ATTACK(flood_errors) { for (;;) if (write(2, page, sizeof page) < 0) return; }
ATTACK(stretch_output) { MUST_FAIL(ftruncate(1, (long)1 << 40)); ftruncate(1, 64 << 20); lseek(1, (long)1 << 40, SEEK_SET); }
ATTACK(unread_its_output) { write(1, "x", 1); ftruncate(1, 0); ftruncate(2, 0); lseek(1, 1 << 20, SEEK_SET); close(1); close(2); }
ATTACK(fill_the_disk_with_one_file)
{
    int fd = open("file", O_CREAT | O_RDWR, 0600);
    for (long held = 0; write(fd, page, sizeof page) > 0; held += sizeof page) if (held > ENOUGH) { foothold("disk"); return; }
}
ATTACK(fill_the_disk_with_files)
{
    char name[32];
    long held = 0;
    for (int at = 0;; at++) {
        snprintf(name, sizeof name, "file%d", at);
        int fd = open(name, O_CREAT | O_RDWR, 0600);
        if (fd < 0) return;
        for (int part = 0; part < 32; part++) { if (write(fd, page, sizeof page) < 0) return; held += sizeof page; }
        close(fd);
        if (held > ENOUGH) { foothold("disk"); return; }
    }
}
ATTACK(fill_the_disk_with_removed_files)
{
    long held = 0;
    for (;;) {
        int fd = open("file", O_CREAT | O_RDWR, 0600);
        if (fd < 0) return;
        unlink("file");
        for (int part = 0; part < 32; part++) { if (write(fd, page, sizeof page) < 0) return; held += sizeof page; }
        mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
        close(fd);
        if (held > ENOUGH) { foothold("disk"); return; }
    }
}
ATTACK(fill_the_disk_in_children)
{
    for (int at = 0; at < 100; at++) {
        if (fork() == 0) { fill_the_disk_with_removed_files(); pin(); }
        usleep(1000);
    }
    pin();
}
ATTACK(fill_the_disk_unseen)
{
    int fd = open("file", O_CREAT | O_RDWR, 0600);
    MUST_FAIL(fallocate(fd, 0, 0, 1 << 20));
    MUST_FAIL(RAW(copy_file_range, fd, NULL, fd, NULL, 4096, 0));
    if (mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) != MAP_FAILED) foothold("a shared mapping");
    if (mmap(NULL, 4096, PROT_READ, MAP_SHARED_VALIDATE, fd, 0) != MAP_FAILED) foothold("a shared mapping");
    int ends[2];
    if (pipe(ends)) return;
    MUST_FAIL(splice(ends[0], NULL, fd, NULL, 1, SPLICE_F_NONBLOCK));
    struct iovec part = {page, sizeof page};
    MUST_FAIL(vmsplice(ends[1], &part, 1, 0));
}
ATTACK(fill_the_disk_where_nobody_may_look)
{
    /* A program that its user may execute but not read is not shown in /proc. */
    if (access("hidden", F_OK) == 0) { fill_the_disk_with_removed_files(); return; }
    int from = open(self, O_RDONLY), to = open("hidden", O_CREAT | O_WRONLY, 0100);
    while (sendfile(to, from, NULL, 1 << 20) > 0) {}
    close(to);
    char *again[] = {"./hidden", "fill_the_disk_where_nobody_may_look", (char *)path, "1", NULL};
    execv("./hidden", again);
}
ATTACK(make_many_files)
{
    char name[32];
    for (int at = 0;; at++) {
        snprintf(name, sizeof name, "%d", at);
        int fd = open(name, O_CREAT | O_WRONLY, 0600);
        if (fd < 0) return;
        close(fd);
        if (at > 200000) { foothold("files"); return; }
    }
}
ATTACK(make_deep_folders)
{
    char name[201];
    memset(name, 'd', 200);
    name[200] = 0;
    for (int at = 0; mkdir(name, 0700) == 0 && chdir(name) == 0; at++) if (at > 200000) { foothold("folders"); return; }
}
ATTACK(make_closed_folders)
{
    mkdir("closed", 0300);
    if (chdir("closed")) return;
    make_many_files();
}
ATTACK(make_a_sparse_file)
{
    int fd = open("output", O_CREAT | O_RDWR, 0600);
    MUST_FAIL(ftruncate(fd, (long)1 << 40));
    MUST_FAIL(pwrite(fd, "x", 1, (long)1 << 40));
}
ATTACK(hand_out_a_folder) { mkdir("output", 0); }
ATTACK(hand_out_the_secret)
{
    MUST_FAIL(symlink(path, "output"));
    MUST_FAIL(link(path, "output"));
    MUST_FAIL(mkfifo("output", 0666));
    MUST_FAIL(mknod("output", S_IFCHR | 0666, 1 << 8 | 5));
}
ATTACK(hold_a_lock) { int fd = open(".", O_RDONLY); flock(fd, LOCK_EX | LOCK_NB); if (fork() == 0) pin(); }
ATTACK(exit_as_if_killed) { _exit(137); }

int main(int argc, char **argv)
{
    if (argc < 4) return 2;
    self = argv[0];
    path = argv[2];
    trainer = atoi(argv[3]);
    for (int at = 0; at < num_attacks; at++)
        if (!strcmp(attacks[at].name, argv[1])) {
            attacks[at].run();
            fflush(stdout);
            return 0;
        }
    return 2;
}
