"""Two timelines of one step: a prediction and a measurement come in, errors by quantity leave."""
