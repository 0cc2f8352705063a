"""Answer questions whose facts lie in two archives: agents who tell each other can, and who reads one provably cannot.

The task and its settings: `pettingllms_envs.environments.archives.rules.Archives`; the workflows:
`pettingllms_envs.environments.archives.librarians`; all other arguments: `pettingllms_envs.assembly.assemble`.
"""

from pettingllms_envs.assembly import DESIGNED, assemble
from pettingllms_envs.environments.archives.librarians import (
    DirectedLibrarian,
    FullLibrarian,
    LibrarianPair,
    LibrarianTeam,
    LoneLibrarian,
    RoutedLibrarian,
    SilentLibrarians,
    SilentPair,
)
from pettingllms_envs.environments.archives.rules import Archives


raw_env, env, parallel_env = assemble(
    Archives,
    __name__,
    (
        LibrarianTeam,
        LibrarianPair,
        SilentLibrarians,
        SilentPair,
        LoneLibrarian,
        FullLibrarian,
        DirectedLibrarian,
        RoutedLibrarian,
        DESIGNED,
    ),
)
