"""The page of `pettingllms view`: a run's numbers and every episode of it, in one HTML file that loads nothing.

`read.py` turns the rows of a run (docs/records.md) into what the page shows, `boards.py` plays them again for the
boards, `summary.py` counts, `build.py` writes the file, `serve.py` shows it on this machine. `static/` is the page
itself: Preact with htm draws it, Observable Plot the charts, jsdiff what changed in a text; all are in the file.
"""

from pettingllms_envs.page.build import build, page


__all__ = ["build", "page"]
