"""Results of training studies, which `pettingllms study` writes and `pettingllms report` reads. Needs no torch.

`results.py` is the format on disk, `power.py` says before a run what a study can show, `analysis.py` compares methods,
`report.py` writes the report as Markdown, `curves.py` draws success over tokens, and `page.py` puts both on one page.
`agreement.py` compares a run with its rerun.
The runs themselves are `pettingllms_trl.research.study`.
"""
