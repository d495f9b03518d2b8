"""gputasks inside doit: configuration, action, checker, backend."""
