"""The forms: five exact ways to compute the contraction."""
