-- What people have to answer, over all sessions. `session_agent` is the agent of the session: grants reach sessions by it.
create table sessions.interaction (
  tenant text not null,
  session_id text not null,
  id text not null,
  agent_id text not null,
  session_agent text not null,
  subject text,
  status text not null,
  created_at text not null,
  applied bigint not null,
  doc jsonb not null,
  primary key (tenant, session_id, id)
);
create index interaction_open on sessions.interaction (tenant, created_at, id) where status = 'open';
create index interaction_open_by_agent on sessions.interaction (tenant, agent_id, created_at, id) where status = 'open';
create index interaction_open_by_subject on sessions.interaction (tenant, subject, created_at, id)
  where status = 'open' and subject is not null;
-- Actions, interactions and the agents of records are in the log already: the projector reads it again.
truncate sessions.session, sessions.history, sessions.turn, sessions.model_call, sessions.receipt, sessions.action,
  sessions.checkpoint, sessions.parked;
