"""The page of `pettingllms view`: a run's numbers and all of its episodes in one self-contained HTML file.

`read.py` turns the rows of a run (docs/records.md) into what the page shows, `boards.py` replays them for the boards,
`summary.py` computes the numbers, `build.py` writes the file, and `serve.py` serves it on this machine. `static/` is
the page itself: it uses Preact with htm, Observable Plot for charts and jsdiff for differences of texts, all included.
`cooperation.py` writes another page, of `pettingllms cooperation`.
"""

from pettingllms_envs.page import cooperation
from pettingllms_envs.page.build import build, page


__all__ = ["build", "cooperation", "page"]
