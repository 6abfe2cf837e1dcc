"""Measured claims: agreement of the forms, speed and memory."""
