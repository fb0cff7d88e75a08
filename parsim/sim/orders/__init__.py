"""Orders of actions found for one plan: a job and a plan come in, its best schedule leaves."""
