"""The first hour on a GPU: parts in order of value, each bounded, that go on where they were cut.

In comes a folder; out go what each part wrote there, its log, and `parts.json` with how it ended.
`executor/suite/first_hour.md` says what to read first.
"""
