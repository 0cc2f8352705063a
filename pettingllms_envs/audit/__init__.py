"""Is a run sound? Checks of rollouts, from plain rows to findings in words, for files and while a run trains.

    from pettingllms_envs.audit import audit

    for finding in audit(run, episodes):
        print(finding.name, finding.status, finding.text)

`rows.py` has what a check reads, `findings.py` what it says. The checks: `completeness.py` (are the rows those that
the run wrote, and do they add up?), `exchange.py` (may the candidates of a group be compared?), `siblings.py` (was
each sampled alone, and one played?), `advantages.py` (do advantages follow from rewards?), `learning.py` (does every
role learn?), `collapse.py` (is a collapse near?). `recorded.py` and `tables.py` make rows of this package's records
and of TRL's completions tables, `history.py` reads the entropies that a trainer logged.
Nothing here imports a model library, and the trainer runs the same checks. docs/audit.md is the user's page.
"""

from pettingllms_envs.audit.checks import Audit, Check, audit
from pettingllms_envs.audit.findings import Finding, Status
from pettingllms_envs.audit.rows import Candidate, Decision, Episode, RunFacts


__all__ = ["Audit", "Candidate", "Check", "Decision", "Episode", "Finding", "RunFacts", "Status", "audit"]
