"""Where attempts run: nothing, a folder of their own, a worktree of their own."""
