"""The contraction as Triton kernels: what runs on the card is in `device`, what prepares and launches it is here."""
