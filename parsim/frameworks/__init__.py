"""Launch files of other frameworks: a plan comes in and their configuration leaves, or the reverse.

`export` writes a plan as a framework's own flags or file, with its own rules; `reading` makes a
scenario of the arguments of a job that somebody runs already.
"""
