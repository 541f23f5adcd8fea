"""Parts that several tasks' networks share."""
