-- What calls used is summed by agent, by model and over a time. Read models are rebuilt, never repaired: the projector reads the log again.
truncate sessions.session, sessions.history, sessions.turn, sessions.model_call, sessions.receipt, sessions.action,
  sessions.interaction, sessions.checkpoint, sessions.parked;
alter table sessions.model_call
  add column agent_id text not null,
  add column model text not null,
  add column at text not null;
create index model_call_by_time on sessions.model_call (tenant, at);
