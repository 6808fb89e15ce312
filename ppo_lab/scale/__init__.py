"""More than one device: what a run needs before it is launched, how it is launched, and who watches over it.

============  =========================================================================
`memory`      the planner: bytes of four models on one device
`launch`      several processes on this machine, from Python or a notebook
`shipped`     the files below ``configs/scale``: headers, plans, DeepSpeed settings
`batch`       effective batch, weights of tokens, statistics from sums over ranks
`alarm`       a gradient norm too large, and the sample that made it
`leak`        memory that grows step after step
`range_test`  which learning rate, by raising it until the loss breaks
`precision`   float32 copies and loss scales
`traffic`     what devices send and compute; targets
============  =========================================================================
"""
