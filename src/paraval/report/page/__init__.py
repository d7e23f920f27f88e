"""The page: one HTML file that shows a run, without a script and without the network."""
