"""Exactly-once effects: ``ctx.transaction`` on SQLite and PostgreSQL."""
