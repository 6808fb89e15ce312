"""Answer to the transfer exercise of notebook 16: one input a segment, and one segment whole at a time."""


def segment_bytes(blocks, block, entry, *, every):
    segments = -(-blocks // every)
    longest = min(every, blocks)
    return segments * entry + longest * block
