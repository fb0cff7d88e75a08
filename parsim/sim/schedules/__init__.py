"""All named schedules of one shape, compared: sizes or a plan come in, rows and timelines leave."""
