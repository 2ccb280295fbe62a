"""Who may do what: keys, tokens, sessions and rules. Knows no HTTP: a door hands in what a caller showed."""
