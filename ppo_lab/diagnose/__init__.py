"""Looking at a run through its log: `plots` draws one panel each, `dashboard` puts them together.

Nothing here imports a model or a trainer; everything is read from the files a run leaves.
"""
