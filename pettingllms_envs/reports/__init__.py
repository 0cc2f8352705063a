"""Reports of commands: `blocks.py` is what they are made of, as Markdown, and `page.py` one HTML page of them."""
