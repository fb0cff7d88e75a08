"""Files of a timeline: its spans come in; a trace, a page or the timeline's own JSON leaves."""
