"""The key figures of the notebooks, by name; each panel's missions and drawn data are tested.

A notebook shows one with a line, ``course.panel("course_map")``; what it draws is a function here, not a cell there.
"""
