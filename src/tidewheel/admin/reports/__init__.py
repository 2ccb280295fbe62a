"""Reports for operators: questions and answers, attention, stuck jobs and queue snapshots."""
