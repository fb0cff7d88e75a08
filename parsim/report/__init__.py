"""What people read: results come in; text, pictures, pages, traces and Markdown leave.

`text` is for terminals, `picture` alone draws with matplotlib, `timeline` writes files of
timelines, `accuracy` the accuracy report; results of `import parsim` show themselves by `display`.
"""
