"""More than one device: how much memory a plan needs before anything is launched."""
