"""One file for each way to split a stage over ranks: data, tensor, context, expert.

In come a stage's module, the plan and the mesh; out goes the same stage, changed so that its ranks
exchange what they must, or an error that says which combination cannot be run. The order matters:
first `apply_tensor_parallel`, then `apply_data_parallel`.
"""
