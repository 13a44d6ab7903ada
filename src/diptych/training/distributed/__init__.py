"""Training on several ranks, with the losses and gradients of one process on the same batches."""
