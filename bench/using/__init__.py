"""Jobs in transactions of their callers: how soon workers hear of them, and what that costs the callers."""
