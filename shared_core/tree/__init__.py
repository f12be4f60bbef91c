"""The verbs of the tree: fork and move, merge, cherry-pick, stash, compare, and draw."""
