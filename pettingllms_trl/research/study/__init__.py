"""`pettingllms study study.yaml`: compares training methods over several seeds, at equal tokens, with tuned settings.

`study_file.py` reads the file, `plan.py` says which runs there are (pure), and `tuning.py` chooses settings.
`runner.py` makes jobs of the runs that are missing, which `schedule.py` hands to worker processes (`worker.py`).
`cells.py` is one run, `preparation.py` makes what it starts from, `guesser.py` is a run without a model, and
`fidelity.py` measures how well advantages agree with counterfactual ones. `verification.py` repeats a finished run.
Results are written and reported by `pettingllms_envs.research.studies`, which needs no torch.
"""
