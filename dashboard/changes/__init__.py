"""From a recommendation to its change: explanation, review, permissions, snooze, story and verdict."""
