"""What is known of a failure: each rank's last activity and report, and who failed first.

In come the exceptions of ranks and the exit of torchrun; out go files in the run's folder `errors`,
one message that names the rank at fault, and notes on restarts. Needs no torch.
"""
