"""`pettingllms study study.yaml`: compares training methods over several seeds, at equal tokens, with tuned settings.

`study_file.py` reads the file, and `plan.py` says which runs there are (pure). `runner.py` chooses settings, and makes
jobs of the runs that are missing, which `schedule.py` hands to worker processes (`worker.py`). `cells.py` is one run,
`preparation.py` makes what it starts from, `guesser.py` is a run without a model, `supervision.py` one of supervised
fine-tuning, and `fidelity.py` measures how well advantages agree with counterfactual ones. `verification.py` repeats a
finished run. `pettingllms_envs.research.studies` writes and reports the results, and needs no torch.
"""
