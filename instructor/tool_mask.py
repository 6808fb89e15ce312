"""Answer to the transfer exercise of notebook 08; `response_mask` is what the learner wrote before."""

from ppo_lab.course.exercises.language import response_mask


def tool_mask(response, *, stop, call, back):
    called = (response == call).cumsum(dim=1) - (response == call).int()
    closed = (response == back).cumsum(dim=1) - (response == back).int()
    inside = called > closed
    return response_mask(response, stop=stop) & ~inside
