"""The contraction as Triton kernels: what runs on the card stands in `device`, what prepares and launches it here."""
