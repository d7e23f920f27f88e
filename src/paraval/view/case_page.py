"""A case: what was asked, and each variant's answers side by side, with what the viewer adds."""
