"""Where attempts run: nowhere in particular, in a folder of their own, or in a worktree of their
own."""
