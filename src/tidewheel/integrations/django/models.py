"""No models: the tables are Tidewheel's own. Django tells only apps with this module that it has migrated."""
