"""What runs on the other side: the fork server, the programs' processes, and what locks them in.

These files run under `sys.executable -I -S` in a process of their own, where `pettingllms_envs` cannot be imported:
they import the standard library and each other, by relative imports, and nothing else (tests/sandbox holds them to
it).

Three kinds of process, each the parent of the next:

    supervisor  (supervisor.py)  outlives the server to clear up after it
    server      (server.py)      one job at a time; trusted, never reads a byte that a program wrote
    job         (job.py)         locked in; compiles the program; forks a process for each test
    test        (program.py)     runs the program

"""
