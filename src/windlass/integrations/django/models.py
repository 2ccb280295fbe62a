"""No models: the tables are Windlass's own. Django tells only apps with this module that it has migrated."""
