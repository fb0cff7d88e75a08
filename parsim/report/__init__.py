"""One file per output form: text, pictures, traces, HTML, Markdown."""
