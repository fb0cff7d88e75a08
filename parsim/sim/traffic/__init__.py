"""Which links a plan uses: groups of ranks and their bytes come in, flows over links leave."""
