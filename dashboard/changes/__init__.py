"""From a recommendation to a change: explanation, review, permissions, snooze, history and verdict."""
