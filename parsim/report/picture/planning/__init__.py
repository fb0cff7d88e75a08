"""Pictures of choices among plans, of sweeps, and of which strategy when."""
