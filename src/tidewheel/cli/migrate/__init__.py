"""``tidewheel migrate``: the schema, brought up to date by hand, or as SQL for those who own their DDL."""
