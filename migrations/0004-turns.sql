-- Sessions say what they wait for. Read models are rebuilt, never repaired: the projector reads the log again.
truncate sessions.session, sessions.history, sessions.turn, sessions.model_call, sessions.receipt, sessions.checkpoint, sessions.parked;
