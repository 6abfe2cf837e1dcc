"""A local page in the browser that takes attention apart live; it shows what `attention` and `analysis` compute."""
