"""The named schedules, one family a file: sizes come in, the ordered actions of each rank leave."""
