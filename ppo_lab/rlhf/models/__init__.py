"""The models of a run: how they are built and loaded, and the trained module over them."""
